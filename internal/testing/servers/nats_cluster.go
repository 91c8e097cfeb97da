package servers

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/nats-io/nats-server/v2/server"
)

// clusterName is what the servers of a cluster call it.
const clusterName = "offpath-test"

// StartNATSCluster starts so many nats-servers that are routed to each other, without JetStream.
// Each may be stopped and restarted on its own, and keeps its addresses.
func StartNATSCluster(n int) ([]*NATS, error) {
	return onFreePort(func(port int) ([]*NATS, error) { return startNATSCluster(n, port) })
}

func startNATSCluster(n int, routes ...int) (cluster []*NATS, err error) {
	for len(routes) < n {
		port, err := freePort()
		if err != nil {
			return nil, fmt.Errorf("start NATS cluster: %w", err)
		}
		routes = append(routes, port)
	}
	for i := range n {
		s, err := StartNATS(NATSOptions{tune: func(o *server.Options) { joinCluster(o, i, routes) }})
		if err != nil {
			for _, started := range cluster {
				err = errors.Join(err, started.Stop())
			}
			return nil, fmt.Errorf("start NATS cluster: %w", err)
		}
		cluster = append(cluster, s)
	}
	return cluster, nil
}

// joinCluster makes the options those of one server of a cluster, given the ports of all servers'
// routes.
func joinCluster(o *server.Options, own int, routes []int) {
	o.ServerName = fmt.Sprintf("%s-%d", clusterName, own)
	o.Cluster = server.ClusterOpts{Name: clusterName, Host: host, Port: routes[own]}
	for i, port := range routes {
		if i != own {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: address(port)})
		}
	}
}
