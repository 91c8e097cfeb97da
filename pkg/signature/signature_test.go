package signature_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/offpath-io/offpath/internal/testing/signaturetest"
	"github.com/offpath-io/offpath/pkg/signature"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// claims are good ones.
var claims = signature.Claims{Bucket: "b", Key: "k", Operation: signature.Put, Version: 7, Expires: noon}

// found is a value that came under b, k at a second.
func found(value, text string, second int) signature.Found {
	return signature.Found{Bucket: "b", Key: "k", Value: []byte(value), Text: text, Raw: []byte(value + text), Written: noon.Add(time.Duration(second) * time.Second)}
}

// A signature is of one value, in one place, by one key, and says itself when it is over.
func TestOnlyWhatWasSignedCounts(t *testing.T) {
	key, next, stranger := signaturetest.NewKey(t), signaturetest.NewKey(t), signaturetest.NewKey(t)
	v := signaturetest.Verifier(t, key, next)
	good := signaturetest.Sign(t, key, claims, "value")
	lift := claims
	lift.Operation = signature.Lift
	for _, test := range []struct{ why, bucket, key, text, value, want string }{
		{"as it was signed", "b", "k", good, "value", ""},
		{"with the other key", "b", "k", signaturetest.Sign(t, next, claims, "value"), "value", ""},
		{"another operation", "b", "k", signaturetest.Sign(t, key, lift, "value"), "value", ""},
		{"not signed", "b", "k", "", "value", "not signed"},
		{"another value", "b", "k", good, "valve", "something else"},
		{"in another bucket", "c", "k", good, "value", "something else"},
		{"under another key", "b", "l", good, "value", "something else"},
		{"another version", "b", "k", strings.Replace(good, ".7.", ".8.", 1), "value", "something else"},
		{"a version written otherwise", "b", "k", strings.Replace(good, ".7.", ".07.", 1), "value", "cannot be read"},
		{"another end", "b", "k", strings.Replace(good, ".7.1", ".7.2", 1), "value", "something else"},
		{"made another operation", "b", "k", strings.Replace(good, "put", "lift", 1), "value", "something else"},
		{"an unknown operation", "b", "k", strings.Replace(good, "put", "puts", 1), "value", "cannot be read"},
		{"of the future", "b", "k", strings.Replace(good, "1.", "2.", 1), "value", "cannot be read"},
		{"with another key", "b", "k", signaturetest.Sign(t, stranger, claims, "value"), "value", "not trusted"},
		{"said to be of a trusted key", "b", "k", strings.Replace(signaturetest.Sign(t, stranger, claims, "value"), stranger.Public(), key.Public(), 1), "value", "something else"},
		{"cut off", "b", "k", good[:len(good)-6], "value", "something else"},
		{"endless", "b", "k", good + strings.Repeat("A", 300), "value", "cannot be read"},
	} {
		_, err := v.Verify(signature.Found{Bucket: test.bucket, Key: test.key, Value: []byte(test.value), Text: test.text}, noon)
		if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, signature.ErrRefused) || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.why, err, test.want)
		}
	}
	for after, want := range map[time.Duration]error{signature.ClockTolerance: nil, signature.ClockTolerance + time.Millisecond: signature.ErrExpired} {
		if _, err := v.Verify(found("value", good, 0), noon.Add(after)); !errors.Is(err, want) {
			t.Errorf("%v after its end: %v", after, err)
		}
	}
}

// Whatever came before, an older value does not count, nor another one of the same version; what is
// in force may be told again and again. When it could not come back any more, it is forgotten.
func TestVersionsOnlyRise(t *testing.T) {
	key := signaturetest.NewKey(t)
	v := signaturetest.Verifier(t, key)
	for i, step := range []struct {
		version uint64
		value   string
		good    bool
	}{{7, "a", true}, {9, "b", true}, {9, "b", true}, {8, "c", false}, {9, "c", false}, {7, "a", false}, {10, "a", true}, {9, "b", false}} {
		c := claims
		c.Version = step.version
		f := found(step.value, signaturetest.Sign(t, key, c, step.value), 10+i)
		if _, err := v.Take(f, noon); (err == nil) != step.good || errors.Is(err, signature.ErrOutrun) {
			t.Errorf("step %d: %v", i, err)
		}
		if f.Written = noon; !step.good { // it was there before what is in force: another reader was quicker, and nobody has forged anything
			_, err := v.Take(f, noon)
			if v.Refuse("b", "k", err); !errors.Is(err, signature.ErrOutrun) || v.Refusals() != 0 {
				t.Errorf("step %d, of the past: %v", i, err)
			}
		}
	}
	if held, ok := v.Held("b", "k", noon); !ok || held.Version != 10 || len(v.All("b", noon)) != 1 || len(v.All("c", noon)) != 0 {
		t.Errorf("held: %+v, %v", held, ok)
	}
	if late := noon.Add(signature.ClockTolerance + time.Second); len(v.All("b", late)) != 0 {
		t.Error("what has expired is remembered")
	}
	if got, want := signature.NextVersion(1<<50, noon), uint64(1<<50+1); got != want {
		t.Errorf("a clock that is behind: %d", got)
	}
	if got, want := signature.NextVersion(5, noon), uint64(noon.UnixMilli()); got != want {
		t.Errorf("version %d, want %d", got, want)
	}
}

// Readers that are told of the same value at the same time all take it.
func TestManyReadersTakeTheSameValue(t *testing.T) {
	key := signaturetest.NewKey(t)
	v := signaturetest.Verifier(t, key)
	for version := range uint64(20) {
		c := claims
		c.Version = version + 1
		text := signaturetest.Sign(t, key, c, "value")
		errs := make(chan error)
		for range 8 {
			go func() {
				_, err := v.Take(found("value", text, 0), noon)
				errs <- err
			}()
		}
		for range 8 {
			if err := <-errs; err != nil {
				t.Errorf("version %d: %v", c.Version, err)
			}
		}
	}
}

// However much is refused, the log has a line now and then; all of it is counted.
func TestRefusalsAreCountedAndLoggedNowAndThen(t *testing.T) {
	var log bytes.Buffer
	v, err := signature.NewVerifier(slog.New(slog.NewTextHandler(&log, nil)), signaturetest.NewKey(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 1000 {
		v.Refuse("b", "k", signature.ErrDeleted)
	}
	most := 1 + int(time.Since(begun)/(10*time.Second))
	if lines := strings.Count(log.String(), "\n"); v.Refusals() != 1000 || lines < 1 || lines > most {
		t.Errorf("%d refusals, %d lines", v.Refusals(), lines)
	}
}

// Keys of users of NATS, with which one logs in, sign nothing here; no error shows a seed.
func TestKeysAreOfTheirOwnKind(t *testing.T) {
	key := signaturetest.NewKey(t)
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := signature.ParseKey([]byte("# rules\n" + seed + "\n")); err != nil || again.Public() != key.Public() {
		t.Errorf("%v, %v", again, err)
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	userSeed, errSeed := user.Seed()
	userPublic, errPublic := user.PublicKey()
	if err := errors.Join(errSeed, errPublic); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "SA", string(userSeed), key.Public(), seed[:30]} {
		if _, err := signature.ParseKey([]byte(content)); err == nil || len(content) > 2 && strings.Contains(err.Error(), content) {
			t.Errorf("%q: %v", content, err)
		}
	}
	third := key.Public() + "," + signaturetest.NewKey(t).Public() + "," + signaturetest.NewKey(t).Public()
	for _, text := range []string{"", "A", userPublic, seed, third} {
		if _, err := signature.ParsePublicKeys(text); err == nil || len(text) > 2 && strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if keys, err := signature.ParsePublicKeys(" " + key.Public() + ", " + signaturetest.NewKey(t).Public()); err != nil || len(keys) != 2 || keys[0] != key.Public() {
		t.Errorf("%q, %v", keys, err)
	}
}

// The bytes are a promise to other versions: what this key has signed is signed so for ever.
func TestGoldenSignature(t *testing.T) {
	// A key of this test alone.
	const seed = "SAAIVXR46CQTCC3K4OV3EGKCTHFGDEONO5VPVK5G5KFWRRRKQUZQORU72Y"
	const golden = "1.put.7.1795176000000.ABJXRST6BB2LV76V3VNUAVGYTARQ7IWEMQAD4JIZ5MBF65UBFNYKIGBV.WRF52OI0hzcFSsDXbITU1WrOutmlOp_arD2dcvcsbj07ZVYnQ9ZHGY3FGHCWse3DCYxadNnbEwsXPkzPsasxAw"
	key, err := signature.ParseKey([]byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	if got := signaturetest.Sign(t, key, claims, "value"); got != golden {
		t.Errorf("signed %s", got)
	}
	if _, err := signaturetest.Verifier(t, key).Verify(found("value", golden, 0), noon); err != nil {
		t.Error(err)
	}
}
