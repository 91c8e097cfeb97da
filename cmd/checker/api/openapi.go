package api

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var description []byte

// Description returns the OpenAPI document of this API and of the others on its port.
func Description() []byte { return bytes.Clone(description) }

func (h *handler) serveDescription(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // an error means that the client has gone
}
