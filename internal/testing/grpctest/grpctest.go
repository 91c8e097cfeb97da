// Package grpctest serves gRPC on free ports, and connects to it.
package grpctest

import (
	"io"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Serve serves at an address until stop is called, or the test ends. It returns the address in use.
func Serve(t testing.TB, server *grpc.Server, address string) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener); close(ended) }()
	stop = func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// Dial returns a connection to a server that lasts until the test ends.
func Dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Post sends the bytes of a call as no client of gRPC would, with further headers, and returns the
// grpc-status of the answer. It may be called by any goroutine.
func Post(t testing.TB, address, method string, headers http.Header, body io.Reader) (status string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+method, body)
	if err != nil {
		return "", err
	}
	r.Header = headers.Clone()
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.Header.Get("Grpc-Status") + res.Trailer.Get("Grpc-Status"), err // one of both is there
}
