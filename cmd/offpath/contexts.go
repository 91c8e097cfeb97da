package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
)

// contexts are named sets of flags that say which fleet to speak with and how to get in, each in a
// file of the user's configuration directory: contexts/NAME.json, an object of flags' values. The
// file "context" beside that directory names the one in use.
type contexts struct{ dir string }

// openContexts returns those of this user. It reads and makes nothing.
func openContexts() (contexts, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return contexts{}, fmt.Errorf("contexts: %w", err)
	}
	return contexts{filepath.Join(dir, "offpath")}, nil
}

// contextFlags are the flags that a context may hold.
var contextFlags = []string{
	"nats", "namespace",
	"nats-ca", "nats-cert", "nats-key", "nats-creds", "nats-nkey", "nats-user", "nats-password-file",
	"redis", "redis-ca", "redis-cert", "redis-key", "redis-user", "redis-password-file",
	"rules-public-keys", "rules-signing-key-file", "entries-public-keys", "entries-signing-key-file",
	"as",
}

// maxContext is the most bytes of a context's file.
const maxContext = 1 << 20

func (c contexts) path(name string) string {
	return filepath.Join(c.dir, "contexts", name+".json")
}

// load reads the settings of a context. No error shows a value, which may hold a password.
func (c contexts) load(name string) (map[string]string, error) {
	if _, err := natsconn.Name(name); err != nil {
		return nil, flags.Usagef("context: %v", err)
	}
	text, err := os.ReadFile(c.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no context %q (offpath context list)", name)
	}
	if err != nil {
		return nil, fmt.Errorf("context %q: %w", name, err)
	}
	var settings map[string]string
	if len(text) > maxContext || json.Unmarshal(text, &settings) != nil {
		return nil, fmt.Errorf("context %q: %s: want a JSON object of strings", name, c.path(name))
	}
	for setting := range settings {
		if !slices.Contains(contextFlags, setting) {
			return nil, fmt.Errorf("context %q: %s: unknown setting %q (want flags without --, "+
				"such as nats)", name, c.path(name), setting)
		}
	}
	return settings, nil
}

// add writes a new context, which nobody else can read.
func (c contexts) add(name string, settings map[string]string) error {
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(c.path(name)), 0o700); err != nil {
		return err
	}
	err = writeNew(c.path(name), string(text)+"\n")
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("context %q exists: edit %s, or remove it with \"offpath context rm %s\"",
			name, c.path(name), name)
	}
	return err
}

// names returns those of all contexts, sorted.
func (c contexts) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(c.dir, "contexts"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// current names the context in use, "" for none.
func (c contexts) current() (string, error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "context"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// use makes a context the one in use.
func (c contexts) use(name string) error {
	if _, err := c.load(name); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.dir, "context"), []byte(name+"\n"), 0o600)
}

// remove removes a context. If it was in use, none is afterwards.
func (c contexts) remove(name string) error {
	if _, err := natsconn.Name(name); err != nil {
		return flags.Usagef("context: %v", err)
	}
	if err := os.Remove(c.path(name)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no context %q (offpath context list)", name)
	} else if err != nil {
		return err
	}
	if now, err := c.current(); err != nil || now != name {
		return err
	}
	return os.Remove(filepath.Join(c.dir, "context"))
}
