package envoylimit

import (
	"io"
	"net/http"
	"strconv"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSONPath is where envoyproxy/ratelimit serves JSON.
const JSONPath = "/json"

// JSON returns a handler of POST requests whose body is a RateLimitRequest in the JSON of protocol
// buffers. The answer is the RateLimitResponse in the same form, with the status 200, or 429 if it
// is OVER_LIMIT. An invalid request is answered with 400, one that is too long with 413, and one
// that cannot be decided with 503 or 500, each with a text that says why.
func JSON(service ratelimitv3.RateLimitServiceServer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "want POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, MaxMessage+1))
		switch {
		case err != nil:
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		case len(body) > MaxMessage:
			http.Error(w, "longer than "+strconv.Itoa(MaxMessage)+" bytes",
				http.StatusRequestEntityTooLarge)
			return
		}
		request := new(ratelimitv3.RateLimitRequest)
		if err := protojson.Unmarshal(body, request); err != nil {
			http.Error(w, "not a rate limit request: "+err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := service.ShouldRateLimit(r.Context(), request)
		if err != nil {
			refuseJSON(w, status.Convert(err))
			return
		}
		writeJSON(w, answer)
	})
}

func refuseJSON(w http.ResponseWriter, s *status.Status) {
	code := http.StatusInternalServerError
	switch s.Code() {
	case codes.InvalidArgument:
		code = http.StatusBadRequest
	case codes.Unavailable:
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, s.Message(), code)
}

func writeJSON(w http.ResponseWriter, answer *ratelimitv3.RateLimitResponse) {
	text, err := protojson.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	switch answer.OverallCode {
	case ratelimitv3.RateLimitResponse_OK:
	case ratelimitv3.RateLimitResponse_OVER_LIMIT:
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(text) // the client may have gone
}
