package natsconn

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"nats://a:4222": "nats://a:4222", "a": "nats://a", "a:1,tls://b": "nats://a:1,tls://b",
	} {
		if got, err := URL(text); got != want || err != nil {
			t.Errorf("URL(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"http://a": `unknown scheme "http"`, "nats://": "a URL without a host",
		"":     "a URL without a host",
		"a,,b": "a URL without a host", "nats://a:port": "not a URL",
		"nats://a:99999": "a URL whose port",
		"nats://a/path":  "a URL with a path", "nats://me:geheim@": "", "http://me:geheim@a": "",
		"nats://geheim@a/path": "", "a,nats://me:geheim@": "", "nats://me:geheim@a:99999": "",
		"nats://me:geheim@a:port": "", "nats://me:ge%zzheim@a": "",
	} {
		if _, err := URL(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "heim") {
			t.Errorf("URL(%q): error %v; want %q and no password", text, err, want)
		}
	}
}

func TestName(t *testing.T) {
	for text, ok := range map[string]bool{"prod-1": true, "a.b": false, "a*": false, "": false} {
		if _, err := Name(text); (err == nil) != ok {
			t.Errorf("Name(%q): error %v", text, err)
		}
	}
}
