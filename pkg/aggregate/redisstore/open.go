package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options say where the store is. URL is needed; the zero value of everything else is its default.
type Options struct {
	// URL is redis://[user[:password]@]host[:port][/database], or rediss:// for TLS. Several, or
	// further addresses as host:port, separated by commas, are nodes of a Cluster; with
	// ?master_name= they are Sentinels.
	URL string
	// Namespace begins the names of all keys, so that fleets can share a Redis; default "offpath".
	Namespace string
	// TLS is how to check the server of a rediss:// URL; default: by its host name and the system's
	// certificates.
	TLS *tls.Config
	// NewTLS, if it is set, is asked for that whenever a connection is made: authorities and
	// certificates may change. It beats TLS; what it returns is not changed; it is called by
	// several goroutines.
	NewTLS func() *tls.Config
	// Credentials, if it is set, is asked for the user ("" for Redis' default one) and the password
	// whenever a connection is made. It beats those of the URL; it is called by several goroutines.
	Credentials func() (user, password string)
	// Remember is how many totals of buckets are remembered, at least, so as not to read them
	// again; default 2 M, which does for 1 M keys of two buckets. While those make room for others,
	// twice as many are held. Each takes up to 40 bytes in a key of two buckets, 60 in one of one,
	// and 11 in one of 60 and more; so by default no more than 240 MB are used, or 150 MB if most
	// keys have two buckets. Negative: none.
	Remember int
	// NewKeys is how many keys of one rule may be new in a shard within one of its windows; default
	// 1 M. Hits of others are in no count. While a server has less than a tenth of its memory left,
	// there may be none of the rule that has most.
	NewKeys int
}

// Times that a server may take. They are short because a batch that fails is sent again anyway, and
// meanwhile holds up its shard.
const (
	dialTimeout  = time.Second
	replyTimeout = 2 * time.Second
	// keepAlive is how often a silent connection is probed.
	keepAlive = 15 * time.Second
)

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Open returns a store. It connects when it is first used; the error is for invalid options, and
// never shows a password.
func Open(o Options) (*Store, error) {
	o.Namespace = cmp.Or(o.Namespace, "offpath")
	if !namespacePattern.MatchString(o.Namespace) {
		return nil, fmt.Errorf("open store: namespace %q: want 1 to 64 letters, digits, '.', '-' or '_'", o.Namespace)
	}
	where, err := parse(o)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if o.NewKeys < 0 {
		return nil, fmt.Errorf("open store: %d new keys", o.NewKeys)
	}
	s := &Store{
		where: where, namespace: o.Namespace, name: newID(),
		memory:  newMemory(cmp.Or(o.Remember, 1<<21)),
		newKeys: newKeys{each: int64(cmp.Or(o.NewKeys, 1_000_000)), spare: 1},
		leases:  sync.Pool{New: func() any { return new(leaseCall) }},
	}
	client := redis.NewUniversalClient(where)
	s.client.Store(&client)
	s.calls.New = func() any { return &call{memory: s.memory, newKeys: &s.newKeys} }
	return s, nil
}

// parse makes a client's options of ours.
func parse(o Options) (*redis.UniversalOptions, error) {
	c := &redis.UniversalOptions{
		ContextTimeoutEnabled: true,
		MaxRetries:            -1, // the checkers repeat
		DialTimeout:           dialTimeout,
		DialerRetries:         1,
		ReadTimeout:           replyTimeout,
		WriteTimeout:          replyTimeout,
		PoolTimeout:           replyTimeout,
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	for i, part := range strings.Split(o.URL, ",") {
		if i > 0 && !strings.Contains(part, "://") {
			part = "redis://" + part
		}
		u, err := url.Parse(part)
		if err != nil || u.Opaque != "" || u.Hostname() == "" || u.Fragment != "" {
			return nil, errURL // without the parser's words: they may quote a password
		}
		if err := addNode(c, u, o.TLS); err != nil {
			return nil, err
		}
	}
	if c.TLSConfig != nil {
		if o.NewTLS == nil {
			o.NewTLS = func() *tls.Config { return c.TLSConfig }
		}
		c.Dialer = dialer(o.NewTLS)
	}
	c.CredentialsProvider = o.Credentials
	cluster := len(c.Addrs) > 1 && c.MasterName == ""
	c.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		info, err := conn.Info(ctx).Result()
		if err != nil {
			return err
		}
		if c.MasterName != "" && infoField(info, "role") == "slave" {
			return errReplica
		}
		return checkInfo(info, cluster)
	}
	if cluster && c.DB != 0 {
		return nil, fmt.Errorf("database %d: a Redis Cluster has only database 0", c.DB)
	}
	return c, nil
}

// dialer returns what makes connections as go-redis does, each with TLS as it is to be then.
func dialer(config func() *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&tls.Dialer{NetDialer: plain, Config: config()}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &frankConn{conn.(*tls.Conn)}, nil
	}
}

// frankConn is a connection that says why the server has ended it. In TLS 1.3 a client has done its
// part of the handshake before the server has looked at its certificate: a refusal comes with the
// first read, but who writes once the server has closed hears only of a reset.
type frankConn struct{ *tls.Conn }

// Write adds the server's reason to the error, if it gave one.
func (c *frankConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		// It is closed, so what has come can be read, and there is nothing to wait for.
		_ = c.SetReadDeadline(time.Now().Add(replyTimeout))
		_, why := c.Read(make([]byte, 1))
		if op := (*net.OpError)(nil); errors.As(why, &op) && op.Op == "remote error" {
			err = fmt.Errorf("%v: %w", err, why)
		}
	}
	return n, err
}

// None of these errors quotes what it is about: a password with a special character in it can turn
// up in any part of a URL.
var (
	errURL = errors.New("not a URL such as redis://user:password@host:6379/0, or several, separated by commas " +
		"(in a user's name or password, write '@', ':', '/', ',' and '%' as %40, %3A, %2F, %2C and %25)")
	errScheme   = errors.New("want redis:// or rediss://")
	errDatabase = errors.New("the part after the address is not the number of a database")
	errQuery    = errors.New("the only options after '?' are master_name, sentinel_username and sentinel_password")
)

// addNode adds one address, and takes over what else the URL says: every one may say it, and
// the last one wins.
func addNode(c *redis.UniversalOptions, u *url.URL, config *tls.Config) error {
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return errScheme
	}
	port := cmp.Or(u.Port(), "6379")
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return errURL
	}
	c.Addrs = append(c.Addrs, net.JoinHostPort(u.Hostname(), port))
	if u.User != nil {
		c.Username = u.User.Username()
		c.Password, _ = u.User.Password()
	}
	if u.Scheme == "rediss" && c.TLSConfig == nil {
		if c.TLSConfig = config.Clone(); c.TLSConfig == nil {
			c.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	if err := setQuery(c, u.Query()); err != nil {
		return err
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		db, err := strconv.Atoi(path)
		if err != nil || db < 0 {
			return errDatabase
		}
		c.DB = db
	}
	return nil
}

// setQuery reads the part of a URL after the question mark.
func setQuery(c *redis.UniversalOptions, query url.Values) error {
	fields := map[string]*string{
		"master_name":       &c.MasterName,
		"sentinel_username": &c.SentinelUsername,
		"sentinel_password": &c.SentinelPassword,
	}
	for name, values := range query {
		field, known := fields[name]
		if !known {
			return errQuery
		}
		*field = values[0]
	}
	return nil
}
