package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/loadtest/torture/link"
)

// How many there are of each part.
const (
	natsServers = 3
	aggregators = 2
	checkers    = 4
)

// fleet are all processes, and the links between them.
type fleet struct {
	dir         string
	rules       string // the checkers' file
	secrets     *secrets
	previous    string // directory of the other version's daemons; "" if there is none
	store       store
	redis       []*node // all that were started
	sentinels   []*part
	nats        []*part
	aggregators []*part
	checkers    []*part
	links       []*wire
}

// wire is the link from one part to another.
type wire struct {
	*link.Link
	from, to string
}

// parts are all processes but those that hold data.
func (f *fleet) parts() []*part { return slices.Concat(f.nats, f.aggregators, f.checkers, f.sentinels) }

// daemons are the checkers and aggregators.
func (f *fleet) daemons() []*part { return slices.Concat(f.aggregators, f.checkers) }

// daemon is the one of this name.
func (f *fleet) daemon(name string) *part {
	all := f.daemons()
	return all[slices.IndexFunc(all, func(p *part) bool { return p.name == name })]
}

// startFleet builds the programs, and starts them. The caller ends the fleet, also after an error.
func startFleet(ctx context.Context, o Options) (f *fleet, err error) {
	f = &fleet{}
	if f.dir, err = os.MkdirTemp("", "offpath-torture-"); err != nil {
		return f, fmt.Errorf("torture: %w", err)
	}
	if err := f.build(ctx, o); err != nil {
		return f, err
	}
	if f.secrets, err = newSecrets(f.dir); err != nil {
		return f, err
	}
	f.rules = filepath.Join(f.dir, "rules.yaml")
	if err := f.writeRules(rulesText(changingLimits[0])); err != nil {
		return f, err
	}
	if err := f.startStore(ctx, o.Mode); err != nil {
		return f, err
	}
	if err := f.startNATS(ctx); err != nil {
		return f, err
	}
	for i := range aggregators {
		if err := f.startAggregator(ctx, i); err != nil {
			return f, err
		}
	}
	for i := range checkers {
		if err := f.startChecker(ctx, i); err != nil {
			return f, err
		}
	}
	return f, nil
}

// build compiles the daemons, with the race detector if that is asked for, and nats-server.
func (f *fleet) build(ctx context.Context, o Options) error {
	daemons := func(to string) []string {
		return []string{"go", "build", "-tags", "torture", "-race=" + strconv.FormatBool(o.Race), "-o", to, "./cmd/checker", "./cmd/aggregator"}
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("torture: go list: %w (run it within the project's sources)", err)
	}
	in := strings.TrimSpace(string(root))
	if err := run(ctx, in, daemons(f.dir+"/")...); err != nil {
		return err
	}
	if err := run(ctx, in, "go", "build", "-o", f.dir+"/", "github.com/nats-io/nats-server/v2"); err != nil {
		return err
	}
	if o.Previous != "" {
		tree := filepath.Join(f.dir, "tree")
		f.previous = filepath.Join(f.dir, "previous")
		if err := run(ctx, in, "git", "worktree", "add", "-q", "--detach", tree, o.Previous); err != nil {
			return err
		}
		err := run(ctx, tree, daemons(f.previous+"/")...)
		if err := errors.Join(err, run(context.WithoutCancel(ctx), in, "git", "worktree", "remove", "--force", tree)); err != nil {
			return err
		}
	}
	return f.buildStoreClock(ctx)
}

// run runs a command of the build.
func run(ctx context.Context, dir string, args ...string) error {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("torture: %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// connect returns the address of a new link to another part.
func (f *fleet) connect(from, to, target string) (string, error) {
	l, err := link.Listen(target)
	if err != nil {
		return "", fmt.Errorf("torture: link %s to %s: %w", from, to, err)
	}
	f.links = append(f.links, &wire{l, from, to})
	return l.Addr(), nil
}

// startNATS starts a cluster. Its servers do not tell clients of each other, who would go around
// their links.
func (f *fleet) startNATS(ctx context.Context) error {
	var routes []string // by server: where it listens for the others
	for range natsServers {
		address, err := servers.FreeAddress()
		if err != nil {
			return fmt.Errorf("torture: %w", err)
		}
		routes = append(routes, address)
	}
	for i := range natsServers {
		name := fmt.Sprint("nats-", i)
		var to []string
		for j := range natsServers {
			if j == i {
				continue
			}
			address, err := f.connect(name, fmt.Sprint("nats-", j), routes[j])
			if err != nil {
				return err
			}
			to = append(to, strconv.Quote("nats-route://"+address))
		}
		p, err := f.start(ctx, name, "nats-server", func(port int) ([]string, error) {
			// Not as arguments: a server that is told to reload takes some of those for changes.
			file := filepath.Join(f.dir, name+".conf")
			return []string{"-c", file}, replaceFile(file, fmt.Appendf(nil, `server_name: %q
listen: "127.0.0.1:%d"
cluster { name: torture, listen: %q, no_advertise: true, routes: [%s] }
include nats.conf
`, name, port, routes[i], strings.Join(to, ",")))
		})
		if err != nil {
			return err
		}
		f.nats = append(f.nats, p)
		p.begin(nil)
	}
	return nil
}

// natsURL is the NATS cluster as a part reaches it, through links of its own.
func (f *fleet) natsURL(from string) (string, error) {
	var urls []string
	for _, n := range f.nats {
		address, err := f.connect(from, n.name, n.program.Address())
		if err != nil {
			return "", err
		}
		urls = append(urls, "tls://"+address)
	}
	return strings.Join(urls, ","), nil
}

func (f *fleet) startAggregator(ctx context.Context, i int) error {
	name := fmt.Sprint("aggregator-", i)
	nats, err := f.natsURL(name)
	if err != nil {
		return err
	}
	store, err := f.store.url(name)
	if err != nil {
		return err
	}
	p, err := f.start(ctx, name, "aggregator", func(port int) ([]string, error) {
		return append(f.secrets.natsFlags(), "--nats", nats, "--redis", store, "--rules", "files",
			"--redis-user", user, "--redis-password-file", f.secrets.file("redis-password"),
			"--admin", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))), nil
	}, f.clockOf(name)...)
	if err != nil {
		return err
	}
	p.admin = p.program.Address()
	f.aggregators = append(f.aggregators, p)
	return p.serve(ctx)
}

func (f *fleet) startChecker(ctx context.Context, i int) error {
	name := fmt.Sprint("checker-", i)
	nats, err := f.natsURL(name)
	if err != nil {
		return err
	}
	var addresses [2]string
	for j := range addresses {
		if addresses[j], err = servers.FreeAddress(); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	rls, admin := addresses[0], addresses[1]
	p, err := f.start(ctx, name, "checker", func(port int) ([]string, error) {
		return append(f.secrets.natsFlags(), "--nats", nats, "--rules", f.rules, "--grpc", rls, "--admin", admin,
			"--listen-cert", f.secrets.file("listen.pem"), "--listen-key", f.secrets.file("listen.pem"),
			"--listen", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))), nil
	}, f.clockOf(name)...)
	if err != nil {
		return err
	}
	p.admin, p.rls, p.trust = admin, rls, f.secrets.pool
	f.checkers = append(f.checkers, p)
	return p.serve(ctx)
}

// setClocks are the daemons with a clock that the storm sets; the others have the machine's, as real
// ones do.
var setClocks = []string{"checker-0", "checker-1", "aggregator-0"}

// clockOf is what tells a daemon of its clock.
func (f *fleet) clockOf(name string) []string {
	if !slices.Contains(setClocks, name) {
		return nil
	}
	return []string{"OFFPATH_TORTURE_CLOCK=" + f.clockFile(name)}
}

// clockFile says how far a daemon's clock is ahead.
func (f *fleet) clockFile(name string) string { return filepath.Join(f.dir, "clock-"+name) }

// serve begins a life once the process is ready, as a load balancer would.
func (p *part) serve(ctx context.Context) error {
	if err := p.awaitReady(ctx); err != nil {
		return err
	}
	var dial *clients
	if p.rls != "" {
		var err error
		if dial, err = newClients(p.program.Address(), p.rls, p.trust); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	p.begin(dial)
	return nil
}

// awaitReady waits until a checker answers at all: it is not ready before it has heard of its
// fleet, and decides all the same.
func (p *part) awaitReady(ctx context.Context) error {
	if p.admin == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := p.get(ctx, "/healthz"); err == nil {
			return nil
		}
		if !p.program.Running() {
			return fmt.Errorf("torture: %s has ended:\n%s", p.name, p.program.Log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("torture: %s does not start:\n%s", p.name, p.program.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (f *fleet) start(
	ctx context.Context, name, program string, args func(int) ([]string, error), env ...string,
) (*part, error) {
	p := &part{name: name, log: new(logbook)}
	var err error
	path := filepath.Join(f.dir, program)
	switch {
	case program == "redis-server": // it is not built
		path = program
	case f.hasOther(name):
		path = f.versionOf(name)
		if err := os.Symlink(program, path); err != nil {
			return nil, fmt.Errorf("torture: %w", err)
		}
	}
	p.program, err = servers.StartProgram(ctx, servers.ProgramOptions{
		Name: path, Prepare: args, Env: env, Output: p.log,
	})
	if err != nil {
		return nil, fmt.Errorf("torture: %s: %w", name, err)
	}
	return p, nil
}

// end ends all processes, and removes what they leave behind.
func (f *fleet) end() error {
	var errs []error
	for _, p := range f.parts() {
		if _, dial, ok := p.current(); ok && dial != nil {
			dial.close()
		}
		errs = append(errs, p.program.StopWithin(stopPatience))
	}
	for _, l := range f.links {
		errs = append(errs, l.Close())
	}
	for _, n := range f.redis {
		errs = append(errs, n.redis.Stop(), n.admin.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// writeRules replaces the checkers' rules.
func (f *fleet) writeRules(text string) error {
	return replaceFile(f.rules, []byte(text))
}

// adminClient asks processes of their state.
var adminClient = &http.Client{
	Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
}

// get returns what the admin API answers; an error unless its status is 200.
func (p *part) get(ctx context.Context, path string) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+path, nil)
	if err != nil {
		return "", err
	}
	response, err := adminClient.Do(q)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return string(text), err
}

// fleetLabel is the label that every metric has, and all parts of a campaign the same.
var fleetLabel = regexp.MustCompile(`\{fleet="[^"]*"\}|fleet="[^"]*",|,fleet="[^"]*"`)

// metrics are the values of /metrics: each by its name with labels but for fleet, and by its name
// alone the sum.
func (p *part) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if at := strings.LastIndex(lines.Text(), "} "); at >= 0 { // labels may hold spaces
			name, value = lines.Text()[:at+1], lines.Text()[at+2:]
		}
		name = fleetLabel.ReplaceAllString(name, "")
		number, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || strings.HasPrefix(name, "#") {
			continue
		}
		all[name] = number
		if family, _, labels := strings.Cut(name, "{"); labels {
			all[family] += number
		}
	}
	return all, nil
}
