// Package reply writes the JSON answers of the HTTP APIs.
package reply

import (
	"encoding/json"
	"net/http"
)

// Failure is the body of an answer to a request that was not served.
type Failure struct {
	Error string `json:"error"`
}

// Error answers with a status and the reason.
func Error(w http.ResponseWriter, status int, reason string) { JSON(w, status, Failure{reason}) }

// contentType is shared by all answers, and never changed.
var contentType = []string{"application/json"}

// JSON answers with a status and a value that JSON can express, on one line.
func JSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, `{"error":"internal"}`, http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}
