// Package tracingtest has a collector of OpenTelemetry traces for tests, in memory and on loopback.
package tracingtest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver takes spans by OTLP over HTTP, and keeps them. Its methods are safe for concurrent use.
type Receiver struct {
	*httptest.Server

	mu    sync.Mutex
	spans []Span
}

// Span is a span, and what its process calls itself.
type Span struct {
	*tracepb.Span
	Service string
}

// Start starts a receiver, and stops it when the test is over.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	return r
}

func (r *Receiver) take(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var m collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &m)
	}
	if err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(request.URL.Path, err), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range m.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{s, service})
			}
		}
	}
}

// Spans returns all spans so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Traces returns the spans by trace, each as "parent > service/name", sorted.
func (r *Receiver) Traces() map[string][]string {
	spans := r.Spans()
	names := map[string]string{}
	for _, s := range spans {
		names[string(s.SpanId)] = s.Name
	}
	all := map[string][]string{}
	for _, s := range spans {
		id := hex.EncodeToString(s.TraceId)
		all[id] = append(all[id], fmt.Sprintf("%s > %s/%s", names[string(s.ParentSpanId)], s.Service, s.Name))
	}
	for _, of := range all {
		slices.Sort(of)
	}
	return all
}
