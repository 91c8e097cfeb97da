package door

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var description []byte

// Description is the door's, and that of what else the HTTP door of cmd/checker serves, as OpenAPI has it.
func Description() []byte { return bytes.Clone(description) }

// describe answers with what the door takes and answers.
func (h *handler) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // an error means that the client has gone
}
