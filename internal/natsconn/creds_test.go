package natsconn

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/internal/tlsfiles"
)

// TestCredentialsExpire: it is known when, so that somebody can be told before a server refuses them.
func TestCredentialsExpire(t *testing.T) {
	account, err := nkeys.CreateAccount()
	must(t, err)
	user, err := nkeys.CreateUser()
	must(t, err)
	public, err := user.PublicKey()
	must(t, err)
	seed, err := user.Seed()
	must(t, err)
	for name, want := range map[string]time.Time{"never": {}, "in an hour": time.Now().Add(time.Hour).Truncate(time.Second)} {
		claims := jwt.NewUserClaims(public)
		if !want.IsZero() {
			claims.Expires = want.Unix()
		}
		text, err := claims.Encode(account)
		must(t, err)
		creds, err := jwt.FormatUserConfig(text, seed)
		must(t, err)
		path := filepath.Join(t.TempDir(), "creds")
		tlsfilestest.Write(t, path, creds)
		files := tlsfiles.New(slog.New(slog.DiscardHandler))
		_, err = (&Access{Creds: path}).creds(files)
		must(t, err)
		if got := files.States()[0].Expires; !got.Equal(want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
