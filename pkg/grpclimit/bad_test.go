package grpclimit_test

import (
	"context"
	"encoding/binary"
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

// raw is a client of HTTP/2 that sends what gRPC's would not. It returns what a server's answer has in grpc-status.
func raw(t *testing.T, address string, body io.Reader, header http.Header) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+unaryMethod, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
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
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return "", err
	}
	if in := res.Header.Get("Grpc-Status"); in != "" { // nothing but trailers
		return in, nil
	}
	return res.Trailer.Get("Grpc-Status"), nil
}

// framed is a message as gRPC sends it.
func framed(message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))) + message
}

const (
	passes = "0"
	denied = "8" // ResourceExhausted
)

// What a client can send wrong, over a real socket.
func TestBadMetadata(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: r, key: [user], limit: 1/hour}]"), grpclimit.Options{User: byMetadata})
	address := serve(t, grpc.ChainUnaryInterceptor(limit.Unary()))
	for _, tt := range []struct {
		why, user string
		want      []string // one after the other
	}{
		{"a name that is not UTF-8", "\xff\xfe\xfd", []string{passes, denied}},
		{"another one", "\xff\xfe\xfc", []string{passes, denied}},
		{"what a key is made with", `a|b\`, []string{passes, denied}},
		{"what a status is escaped with", "%00%", []string{passes, denied}},
		{"a long name", strings.Repeat("l", 500_000), []string{passes, denied}},
		{"one that differs at its end", strings.Repeat("l", 500_000) + "m", []string{passes, denied}},
	} {
		for i, want := range tt.want {
			got, err := raw(t, address, strings.NewReader(framed("")), http.Header{"X-User": {tt.user}})
			if got != want || err != nil {
				t.Errorf("%s, %d: %q, %v, want %q", tt.why, i, got, err, want)
			}
		}
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

// Half a call and then silence takes no place and no hit, and keeps nobody.
func TestHalfACall(t *testing.T) {
	limit := newLimit(t, checker(t, "rules: [{name: r, key: [user], limit: 2/hour}]"), grpclimit.Options{User: byMetadata})
	address := serve(t, grpc.ChainUnaryInterceptor(limit.Unary()))
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		got, err := raw(t, address, reader, http.Header{"X-User": {"kristie"}})
		if err == nil && got != denied {
			err = fmt.Errorf("status %q, want %q", got, denied)
		}
		ended <- err
	}()
	if _, err := io.WriteString(writer, framed("")[:3]); err != nil {
		t.Fatal(err)
	}
	client := dial(t, address)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		if _, err := client.UnaryCall(as(t.Context(), "x-user", "kristie"), &grpc_testing.SimpleRequest{}); status.Code(err) != want {
			t.Errorf("call %d beside it: %v, want %v", i, err, want)
		}
	}
	if _, err := io.WriteString(writer, framed("")[3:]); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if err := <-ended; err != nil {
		t.Errorf("the other half: %v", err)
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
	if err != nil {
		t.Fatal(err)
	}
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
