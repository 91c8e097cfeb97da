package grpclimit_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
)

// raw sends bytes as a user, and returns what the answer has in grpc-status.
func raw(t *testing.T, address string, body io.Reader, user string) string {
	status, err := grpctest.Post(t, address, unaryMethod, http.Header{"X-User": {user}}, body)
	return fmt.Sprint(status, " ", err)
}

const (
	framed = "\x00\x00\x00\x00\x00" // an empty message, as gRPC sends it
	denied = "8 <nil>"              // ResourceExhausted
)

// What a client can send wrong, over a real socket: each name has a hit of its own. Half a call and then silence takes no place
// and no hit, and keeps nobody.
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

// Thousands of values are not what a call fails by, and the first of a name counts.
func TestMuchMetadata(t *testing.T) {
	const yaml = "rules: [{name: r, key: ['header:x-user', 'header:none'], on_missing: empty, limit: 2/hour}]"
	client := behind(t, newLimit(t, checker(t, yaml), grpclimit.Options{}))
	var names, values []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("x-", i), "v")
		values = append(values, "x-user", fmt.Sprint(i))
	}
	for why, pairs := range map[string][]string{"10,000 names": names, "10,000 values of one name": values} {
		for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
			_, err := client.UnaryCall(as(t.Context(), pairs...), &grpc_testing.SimpleRequest{})
			if status.Code(err) != want {
				t.Errorf("%s, call %d: %v, want %v", why, i, err, want)
			}
		}
	}
}
