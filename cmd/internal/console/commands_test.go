package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/status"
)

// An answer that NATS does not take would not be sent, and look like no answer: a view is made
// shorter, and of anything else the reason is told.
func TestAnswersFit(t *testing.T) {
	v := View{Heard: Heard{Checkers: 5000, Blocks: 9000}}
	for i := range most {
		v.Checkers = append(v.Checkers, CheckerView{Part: status.Part{Name: fmt.Sprint(i), Host: strings.Repeat("h", status.MaxText)}})
		v.Blocks = append(v.Blocks, BlockView{Key: status.Text(strings.Repeat("\x01", 512))})
	}
	const limit = 100_000
	data, err := encodeAnswer(v, nil, limit)
	if err != nil || len(data) > limit || len(data) < limit/4 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	var a Answer
	var got View
	must(t, errors.Join(json.Unmarshal(data, &a), json.Unmarshal(a.Value, &got)))
	if got.Heard != v.Heard || len(got.Checkers) == 0 || len(got.Blocks) == 0 || got.Checkers[0].Name != "0" {
		t.Errorf("%d checkers and %d blocks of %+v", len(got.Checkers), len(got.Blocks), got.Heard)
	}
	if _, err := encodeAnswer([]string{strings.Repeat("x", limit)}, nil, limit); err == nil || !strings.Contains(err.Error(), "100000") {
		t.Errorf("%v", err)
	}
	if _, err := encodeAnswer(View{Namespace: strings.Repeat("x", limit)}, nil, limit); err == nil {
		t.Error("a view that cannot be made shorter")
	}
	data, err = encodeAnswer(KeyView{Count: 3}, fmt.Errorf("%w: full", ErrUnwritten), limit)
	if err != nil || !strings.Contains(string(data), `"count":3`) || !strings.Contains(string(data), "not written to the audit log: full") {
		t.Errorf("done, but not written: %s, %v", data, err)
	}
}
