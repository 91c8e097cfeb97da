package pair

import "testing"

func TestAll(t *testing.T) {
	if len(All("x")) != 2 {
		t.Error("All returned another number")
	}
}
