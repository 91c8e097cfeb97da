package daemon

import "testing"

func TestParseOrigins(t *testing.T) {
	for text, want := range map[string]Origins{
		"https://Ops.example": "https://ops.example", "*": "*", "http://a:80, https://b": "http://a:80,https://b",
		"": "", "a": "", "null": "", "https://a/": "", "https://a/b": "", "https://u@a": "", "https://a,": "", "https://a?": "", "//a": "",
	} {
		if got, err := parseOrigins(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
