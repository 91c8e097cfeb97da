package identity

import "testing"

func TestFoldHost(t *testing.T) {
	for host, want := range map[string]string{
		"a.example": "a.example", "A.Example": "a.example", "a.example.": "a.example", "a.example:80": "a.example", "a.example.:80": "a.example", "a.example:": "a.example",
		"": "", ":80": "", "a1": "a1", "a:b": "a", "a.:80.": "a", "192.0.2.1:80": "192.0.2.1", "192.0.2.1": "192.0.2.1",
		"[2001:DB8::1]:80": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]", "[2001:DB8::1]x": "[2001:db8::1]", "[2001:db8:": "[2001:db8:", "::1": "::1", "a:1:2": "a",
	} {
		if got := FoldHost(host); got != want || FoldHost(got) != want {
			t.Errorf("%q: %q, and of that %q; want %q", host, got, FoldHost(got), want)
		}
	}
}

// A host's key is the same however the client writes it, and other headers stay as they are.
func TestKeysOfHosts(t *testing.T) {
	key := func(name, value string) string {
		return string(AppendKey(nil, []string{name, "user"}, Attributes{{name, value}, {"user", "U"}}))
	}
	for _, name := range []string{"header:Host", "header:host"} {
		if got := key(name, "A.example:80"); got != "a.example|U" {
			t.Errorf("%s: key %q", name, got)
		}
	}
	if got := key("header:Hosts", "A.example:80"); got != "A.example:80|U" {
		t.Errorf("another header: key %q", got)
	}
}

func TestFoldPath(t *testing.T) {
	for path, want := range map[string]string{"/": "/", "/Login": "/login/", "/login/": "/login/", "": "", "*": "*"} {
		if got := FoldPath(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
