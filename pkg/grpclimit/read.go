package grpclimit

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
)

// Names of built-in attributes, besides that of Options.User.
const (
	methodName  = "method"
	serviceName = "service"
	ipName      = "ip"
	addressName = "address"

	headerPrefix = "header:"
)

// Source returns an attribute of a call; ok is false if the call has none, and an empty value is
// one. grpc.Method returns the call's method, and [FromMetadata] reads what the client sent. A
// Source is called at most once per decision, and concurrently.
type Source func(ctx context.Context) (value string, ok bool)

// FromMetadata returns a source that reads the first value of a name, in any case. For "Host" it is
// the :authority. The values of a name that ends in "-bin" are bytes. It is for attributes that
// another server writes: {"user": FromMetadata("x-user")} behind a proxy that sets x-user itself.
func FromMetadata(name string) Source {
	name = strings.ToLower(name)
	if name == "host" { // its name in HTTP/2
		name = ":authority"
	}
	return func(ctx context.Context) (string, bool) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}
}

// callSource is a source that also knows the call's method.
type callSource func(ctx context.Context, method string) (value string, ok bool)

// source returns an attribute's source, nil if nothing provides it. It fails if no call can have
// the attribute; names are those of HTTP, since rules may be for both.
func (l *Limit) source(name string) (callSource, error) {
	if source, ok := l.options.Sources[name]; ok {
		return source.ofCall, nil
	}
	if _, err := l.builder.Reader([]string{name}); err != nil {
		return nil, err
	}
	if header, ok := strings.CutPrefix(name, headerPrefix); ok {
		return FromMetadata(header).ofCall, nil
	}
	if name == adapter.UserName && l.options.User == nil {
		return nil, nil
	}
	return map[string]callSource{
		adapter.UserName: l.user, methodName: method, serviceName: service,
		ipName: l.group, addressName: l.address,
	}[name], nil
}

func (s Source) ofCall(ctx context.Context, _ string) (string, bool) { return s(ctx) }

func (l *Limit) user(ctx context.Context, _ string) (string, bool) {
	user := l.options.User(ctx)
	return user, user != ""
}

func method(_ context.Context, method string) (string, bool) { return method, true }

// service returns the middle part of a method's full name, which another form does not have.
func service(_ context.Context, method string) (string, bool) {
	method = strings.TrimPrefix(method, "/")
	name := method[:max(strings.LastIndexByte(method, '/'), 0)]
	return name, name != ""
}

func (l *Limit) group(ctx context.Context, _ string) (string, bool) {
	addr, ok := l.client(ctx)
	o := &l.options.Identity
	return identity.Group(addr, o.IPv4Prefix, o.IPv6Prefix), ok
}

func (l *Limit) address(ctx context.Context, _ string) (string, bool) {
	addr, ok := l.client(ctx)
	return addr.String(), ok
}

// client returns the address of a call's client.
func (l *Limit) client(ctx context.Context) (netip.Addr, bool) {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return netip.Addr{}, false
	}
	proxies := l.options.Identity.TrustedProxies
	if tcp, ok := from.Addr.(*net.TCPAddr); ok && len(proxies) == 0 { // the common case: no text
		addr := tcp.AddrPort().Addr().WithZone("").Unmap()
		return addr, addr.IsValid()
	}
	forwarded := metadata.ValueFromIncomingContext(ctx, l.forwarding)
	return l.builder.ClientIPFrom(from.Addr.String(), forwarded)
}

// attributes appends those of a call to dst.
func (p *plan) attributes(
	dst identity.Attributes, ctx context.Context, method string,
) identity.Attributes {
	for _, source := range p.sources {
		if value, ok := source.read(ctx, method); ok {
			dst = append(dst, identity.Attribute{Name: source.name, Value: value})
		}
	}
	return dst
}
