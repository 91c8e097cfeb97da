package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/grpclimit"
)

// raw is a client of HTTP/2 that sends what gRPC's would not, as a user. It returns what a server's answer has in grpc-status.
func raw(t *testing.T, address string, body io.Reader, user string) string {
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+unaryMethod, body)
	if err != nil {
		return err.Error()
	}
	r.Header = http.Header{"X-User": {user}, "Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return fmt.Sprint(res.Header.Get("Grpc-Status"), res.Trailer.Get("Grpc-Status"), " ", err) // in the header: nothing but trailers
}

const (
	framed = "\x00\x00\x00\x00\x00" // an empty message, as gRPC sends it
	denied = "8 <nil>"              // ResourceExhausted
)

// What a client can send wrong, over a real socket: each name has a hit of its own. Half a call and then silence takes no place and
// no hit, and keeps nobody.
func TestBadMetadata(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: r, key: [user], limit: 1/hour}]"), grpclimit.Options{User: byMetadata})
	address := serve(t, grpc.ChainUnaryInterceptor(limit.Unary()))
	reader, writer := io.Pipe()
	half := make(chan string, 1)
	go func() { half <- raw(t, address, reader, `a|b\`) }()
	_, err := io.WriteString(writer, framed[:3])
	must(t, err)
	long := strings.Repeat("l", 500_000)
	for _, user := range []string{"\xff\xfe\xfd", "\xff\xfe\xfc", `a|b\`, "%00%", long, long + "m"} {
		for _, want := range []string{"0 <nil>", denied} {
			if got := raw(t, address, strings.NewReader(framed), user); got != want {
				t.Errorf("%.20q: %s, want %s", user, got, want)
			}
		}
	}
	_, err = io.WriteString(writer, framed[3:])
	must(t, err)
	must(t, writer.Close())
	if got := <-half; got != denied {
		t.Errorf("the other half: %s, want %s", got, denied)
	}
}

// Thousands of values are not what a call fails by; more than a server reads is its own to refuse.
func TestMuchMetadata(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: r, key: ['header:x-user', 'header:none'], on_missing: empty, limit: 2/hour}]"), grpclimit.Options{})
	client := behind(t, limit)
	small := dial(t, serve(t, grpc.ChainUnaryInterceptor(limit.Unary()), grpc.MaxHeaderListSize(4096)))
	var names, values []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("x-", i), "v")
		values = append(values, "x-user", fmt.Sprint(i))
	}
	for _, tt := range []struct {
		why    string
		client grpc_testing.TestServiceClient
		pairs  []string
		want   codes.Code
	}{
		{"10,000 names", client, names, codes.OK},
		{"once more", client, names, codes.OK},
		{"and counted", client, names, codes.ResourceExhausted},
		{"10,000 values of one name: the first counts", client, values, codes.OK},
		{"once more", client, values, codes.OK},
		{"and counted", client, values, codes.ResourceExhausted},
		{"more than the server reads", small, names, codes.Internal},
	} {
		if _, err := tt.client.UnaryCall(as(t.Context(), tt.pairs...), &grpc_testing.SimpleRequest{}); status.Code(err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.why, err, tt.want)
		}
	}
}

// A stream whose client says nothing waits for its message, not for the Limit, and ends with its client.
func TestSilentStream(t *testing.T) {
	ended := make(chan error, 1)
	limit := newLimit(t, checker(t, three), grpclimit.Options{User: byMetadata, Messages: true})
	outer := func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		err := handler(srv, s)
		ended <- err
		return err
	}
	client := dial(t, serve(t, grpc.ChainStreamInterceptor(outer, limit.Stream())))
	ctx, leave := context.WithCancel(as(t.Context(), "x-user", "kristie"))
	s, err := client.FullDuplexCall(ctx)
	must(t, err)
	if got := echo(s); got != codes.OK {
		t.Errorf("%v", got)
	}
	leave()
	if err := <-ended; status.Code(err) != codes.Canceled && !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if got := echo(stream(t, client, "x-user", "kristie")); got != codes.OK {
		t.Errorf("the next one: %v", got)
	}
}
