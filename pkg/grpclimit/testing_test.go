package grpclimit_test

import (
	"context"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
)

const (
	unaryMethod  = "/grpc.testing.TestService/UnaryCall"
	duplexMethod = "/grpc.testing.TestService/FullDuplexCall"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var parse, checker = rulestest.Parse, rulestest.Checker

func newLimit(t testing.TB, c grpclimit.Checker, o grpclimit.Options) *grpclimit.Limit {
	t.Helper()
	l, err := grpclimit.New(c, o)
	must(t, err)
	return l
}

// byMetadata finds the user as an interceptor that has checked him would have left him.
func byMetadata(ctx context.Context) string {
	user, _ := xUser(ctx)
	return user
}

var xUser = grpclimit.FromMetadata("x-user")

// incoming is the context of a call from an address, with metadata in pairs.
func incoming(from net.Addr, pairs ...string) context.Context {
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: from})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(pairs...))
}

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711} }

// call makes a call without a network, and says with which code it ended.
func call(ctx context.Context, i grpc.UnaryServerInterceptor) codes.Code {
	_, err := i(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, func(context.Context, any) (any, error) { return nil, nil })
	return status.Code(err)
}

// service answers every call, and every message of a stream.
type service struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (*service) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{Username: "hello"}, nil
}

func (*service) FullDuplexCall(both grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	for {
		_, err := both.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := both.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// serve has a server on a socket, until the test ends, and returns its address.
func serve(t testing.TB, o ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(o...)
	grpc_testing.RegisterTestServiceServer(server, new(service))
	address, _ := grpctest.Serve(t, server, "127.0.0.1:0")
	return address
}

// dial is a real client of that server.
func dial(t testing.TB, address string) grpc_testing.TestServiceClient {
	t.Helper()
	return grpc_testing.NewTestServiceClient(grpctest.Dial(t, address))
}

// behind is a client of a server behind the interceptors of a Limit.
func behind(t testing.TB, l *grpclimit.Limit) grpc_testing.TestServiceClient {
	t.Helper()
	return dial(t, serve(t, grpc.ChainUnaryInterceptor(l.Unary()), grpc.ChainStreamInterceptor(l.Stream())))
}

// as is a client's context with metadata.
func as(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// serverStream is a stream without a network.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }
