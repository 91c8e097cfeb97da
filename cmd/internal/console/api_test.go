package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// deskWorker knows every key; its store may be away.
type deskWorker struct {
	err   error
	ahead time.Duration // of the fleet's time
}

func (w *deskWorker) Lookup(context.Context, storage.Rule, string) (aggregate.KeyState, error) {
	return aggregate.KeyState{Count: 3, Limit: 5, Remaining: 2}, w.err
}

func (w *deskWorker) Reset(context.Context, storage.Rule, string) (before, after aggregate.KeyState, err error) {
	return aggregate.KeyState{Count: 3}, aggregate.KeyState{}, w.err
}

func (w *deskWorker) Stats() aggregate.Stats { return aggregate.Stats{} }
func (w *deskWorker) Ready() error           { return w.err }
func (w *deskWorker) Now() time.Time         { return time.Now().Add(w.ahead) }

// newDesk returns a console that has heard of the rule "r", and its worker.
func newDesk(t *testing.T) (*Console, *deskWorker) {
	t.Helper()
	conn := serverstest.Connect(t, serverstest.JetStream(t).URL())
	tokens, err := OpenTokens(nil, "", "kristie:"+good)
	must(t, err)
	w := &deskWorker{}
	c, err := New(Options{Conn: conn, Namespace: "test", Worker: w, Tally: NewTally(), Tokens: tokens})
	must(t, err)
	s := checkerSays("a", 1, 0)
	of := status.Rule{Name: "r", WindowMS: 1000, Buckets: 1, Algorithm: "sliding_window", Limit: 5}
	override := of
	override.Name, override.Of = "r/plan=pro", "r"
	s.Set = []status.Rule{of, override}
	c.picture.checker(s)
	return c, w
}

var must = daemontest.Must

// listed are the blocks in the bucket, of which there have to be so many.
func listed(t *testing.T, c *Console, want int) []blocks.Block {
	t.Helper()
	list, err := c.bucket.List(t.Context())
	if err != nil || len(list) != want {
		t.Fatalf("%+v, %v; want %d", list, err, want)
	}
	return list
}

// ask asks the handler for a path, with a body and a token if there are any.
func ask(t *testing.T, h http.Handler, method, path, body, authorization, contentType string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if r.Host == "example.com" { // which is httptest's
		r.Host = "localhost"
	}
	r.Header.Set("Content-Type", contentType)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// TestAPI: who asks for what, by which token, and what he is answered.
func TestAPI(t *testing.T) {
	c, w := newDesk(t)
	handler := c.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	const bearer = "Bearer " + good
	for _, test := range []struct {
		method, path, body, token string
		want                      int
		says                      string
	}{
		{"GET", "/", "", "", 200, "console.js"},
		{"GET", "/console.js", "", "", 200, "EventSource"},
		{"GET", "/console.css", "", "", 200, "prefers-color-scheme"},
		{"GET", "/api/view", "", "", 200, `"rule":"r"`},
		{"GET", "/api/rules", "", "", 200, ""},
		{"GET", "/metrics", "", "", http.StatusTeapot, ""},
		{"GET", "/elsewhere", "", "", http.StatusTeapot, ""},
		{"GET", "/api/key?key=k", "", "", 200, `"count":3`},
		{"GET", "/api/key?rule=r&key=%3Cscript%3E", "", "", 200, `"key":"\u003cscript\u003e"`},
		{"GET", "/api/key?rule=r&key_base64=/w==", "", "", 200, `"base64":"/w=="`},
		{"GET", "/api/key?rule=r&key_base64=%2520", "", "", 400, "base64"},
		{"GET", "/api/key?rule=s&key=k", "", "", 404, "there is r"},
		{"GET", "/api/block", "", bearer, http.StatusTeapot, ""}, // not by GET
		{"POST", "/api/block", `{"rule":"r","key":"k"}`, "", 401, "token"},
		{"POST", "/api/unblock", `{"rule":"r","key":"k"}`, "", 401, "token"},
		{"POST", "/api/reset", `{"rule":"r","key":"k"}`, "", 401, "token"},
		{"POST", "/api/token", "", "", 401, "token"},
		{"POST", "/api/token", "", "Bearer wrong", 401, "nobody has this token"},
		{"POST", "/api/block", `{"rule":"r","key":"k"}`, good, 401, "token"}, // no Bearer
		{"POST", "/api/block", `{`, bearer, 400, "unexpected EOF"},
		{"POST", "/api/block", `{"rule":"r","key":5}`, bearer, 400, "key"},
		{"POST", "/api/block", `{"rule":"r","key_base64":"?"}`, bearer, 400, "base64"},
		{"POST", "/api/block", `{"rule":"s","key":"k"}`, bearer, 404, "no such rule"},
		// What is not understood would otherwise be a block for another time, or of another key.
		{"POST", "/api/block", `{"rule":"r","key":"k","for_ms":60000}`, bearer, 400, `for_ms`},
		{"POST", "/api/block", `{"rule":"r","key":"k","Seconds":60}`, bearer, 400, `Seconds`},
		{"POST", "/api/block", `{"rule":"r","key":"k","seconds":60,"seconds":6000}`, bearer, 400, "seconds"},
		{"POST", "/api/block", `{"rule":"r","key":"k","seconds":null}`, bearer, 400, "null"},
		{"POST", "/api/block", `{"rule":"r","key":"k","seconds":60} {"seconds":6000}`, bearer, 400, "after"},
		{"POST", "/api/block", `{"rule":"r","key":"k","key_base64":"aw=="}`, bearer, 400, "want one of key and key_base64"},
		{"POST", "/api/block", `null`, bearer, 400, "null"},
		{"POST", "/api/unblock", `{"rule":"r","keys":["k"]}`, bearer, 400, `keys`},
		{"POST", "/api/reset", `{"rule":"r","key":"k","at":0}`, bearer, 400, `at`},
		{"POST", "/api/reset", `{"rule":"r","key":"k"}`, "Bearer " + good + "x", 401, "nobody has this token"},
		{"POST", "/api/block", `{"rule":"r","key":"k","seconds":-5}`, bearer, 400, "before it begins"},
		{"POST", "/api/block", `{"rule":"r","key":"k","seconds":1e18}`, bearer, 400, "want at most"},
		{"POST", "/api/block", `{"rule":"r","key":"` + strings.Repeat("x", 513) + `"}`, bearer, 400, "513 bytes"},
		{"POST", "/api/block", `{"rule":"r","key":"` + strings.Repeat("x", maxBody) + `"}`, bearer, 400, "too large"},
		{"POST", "/api/block", `{"rule":"r","key":"k"}`, bearer, 200, `"by":"kristie"`},
		{"POST", "/api/unblock", `{"rule":"r","key":"k"}`, bearer, 200, ""},
		{"POST", "/api/unblock", `{"rule":"r","key":"k"}`, bearer, 404, "no such block"},
		{"POST", "/api/reset", `{"rule":"r","key":"k"}`, bearer, 200, `"count":0`},
		{"POST", "/api/reset", `{"rule":"s","key":"k"}`, bearer, 404, "no such rule"},
	} {
		answer := ask(t, handler, test.method, test.path, test.body, test.token, "application/json")
		if answer.Code != test.want || !strings.Contains(answer.Body.String(), test.says) {
			t.Errorf("%s %.60s %.60s: %d %.300s; want %d %s", test.method, test.path, test.body, answer.Code, answer.Body, test.want, test.says)
		}
		if got := answer.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") || strings.Contains(got, "unsafe") {
			t.Errorf("%s: policy %q", test.path, got)
		}
	}
	// A form of another site's has another type, and is refused even with a token.
	form := ask(t, handler, "POST", "/api/block", `{"rule":"r","key":"k"}`, bearer, "text/plain")
	if form.Code != 400 || !strings.Contains(form.Body.String(), "application/json") {
		t.Errorf("a form: %d %s", form.Code, form.Body)
	}
	listed(t, c, 0)
	w.err = errors.New("the store is away")
	answer := ask(t, handler, "GET", "/api/key?rule=r&key=k", "", "", "")
	if answer.Code != 503 || !strings.Contains(answer.Body.String(), "away") {
		t.Errorf("without a store: %d %s", answer.Code, answer.Body)
	}
}

// Keys of an override are counted apart, and come under its counter's name to the page. A block of
// that name would keep nobody out.
func TestBlockOfOverride(t *testing.T) {
	c, _ := newDesk(t)
	b, err := c.blockFor(t.Context(), Who{Name: "kristie"}, &order{Rule: "r/plan=pro", key: "k", Seconds: 60})
	must(t, err)
	// Aggregators tell of a counter before checkers have told which rule it is of.
	early := checkerSays("early", 1, 0)
	c.picture.checker(early)
	c.picture.aggregator(status.Aggregator{Part: status.Part{Name: "a", Every: 1000}, Rules: []status.Rule{
		{Name: "s/plan=pro", WindowMS: 1000, Buckets: 1, Algorithm: "sliding_window", Limit: 5},
	}})
	soon := &order{Rule: "s/plan=pro", key: "k", Seconds: 60}
	if _, err := c.blockFor(t.Context(), Who{}, soon); !errors.Is(err, errTooSoon) {
		t.Errorf("not known yet: %v", err)
	}
	early.Set = []status.Rule{{Name: "s/plan=pro", WindowMS: 1000, Buckets: 1, Algorithm: "sliding_window", Limit: 5}} // a rule of this name
	c.picture.checker(early)
	if c.picture.mayBeOverrides("s/plan=pro") {
		t.Error("a rule is taken for an override's counter")
	}
	list := listed(t, c, 1)
	if list[0].Rule != "r" || b.(BlockView).Rule != "r" {
		t.Errorf("%+v, %+v", b, list)
	}
	c.takeBlocks(list)
	for _, rule := range []string{"r", "r/plan=pro"} {
		if found, err := c.Look(t.Context(), rule, "k"); err != nil || found[0].Block == nil {
			t.Errorf("%s: %+v, %v", rule, found, err)
		}
	}
	_, err = c.unblockFor(t.Context(), Who{}, &order{Rule: "r/plan=pro", key: "k"})
	must(t, err)
	listed(t, c, 0)
}

// Blocks end by the fleet's time, which checkers have too, and not by the clock of whoever has made
// them.
func TestBlocksEndByTheFleetsTime(t *testing.T) {
	for _, ahead := range []time.Duration{-2 * time.Hour, 2 * time.Hour} {
		c, w := newDesk(t)
		w.ahead = ahead
		b, err := c.blockFor(t.Context(), Who{}, &order{Rule: "r", key: "k", Seconds: 60})
		must(t, err)
		list := listed(t, c, 1)
		if left := list[0].Until.Sub(w.Now()); left > time.Minute || left < -time.Minute || b.(BlockView).EndsIn != 60_000 {
			t.Errorf("%v ahead: %v left, %+v", ahead, left, b)
		}
		c.takeBlocks(list)
		if v := c.View(); len(v.Blocks) != 1 || v.Heard.Blocks != 1 {
			t.Errorf("%v ahead: %+v", ahead, v.Blocks)
		}
	}
}

// A console that starts where there are blocks already, as every one but the first does, says that
// it can read them.
func TestBlocksThatAreThereCanBeRead(t *testing.T) {
	c, _ := newDesk(t)
	must(t, c.bucket.Make(t.Context()))
	if why := c.View().BlocksWhy; why == "" {
		t.Error("they are read before anybody has")
	}
	daemontest.Background(t, func(ctx context.Context) error {
		c.bucket.Watch(ctx, c.takeBlocks, c.troubleOfBlocks)
		return nil
	})
	daemontest.Until(t, "they can be read", func() string { return c.View().BlocksWhy })
}

// A set in the bucket that is refused is still refused after the connection was away: nobody is
// told of it again.
func TestRefusedRulesStayRefused(t *testing.T) {
	b := newRuleBook()
	why := func(want string) {
		t.Helper()
		if got := b.view().Why; !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	why("not read yet")
	b.take(natssource.Entry{Data: []byte("rules: [{limit: -1}]"), Revision: 2})
	why("refused: line 1")
	b.trouble(errors.New("away"))
	why("away")
	b.trouble(nil)
	why("refused: line 1")
	b.trouble(natssource.ErrNoRules)
	why("none in the bucket")
	b.take(natssource.Entry{Data: []byte("rules: [{name: r, key: [user], limit: 1/day}]"), Revision: 4})
	why("")
}

// What fails is in the audit log, too; and what is done although that cannot be written says so.
func TestAudit(t *testing.T) {
	c, _ := newDesk(t)
	var written []Record
	var trouble error
	o := NewOperator(c.bucket, time.Now, func(_ context.Context, r Record) error { written = append(written, r); return trouble })
	who := Who{"kristie", "here"}
	_, err := o.Block(t.Context(), who, "r", "k", defaultBlock)
	must(t, err)
	if err := o.Unblock(t.Context(), who, "r", "never"); !errors.Is(err, blocks.ErrNoBlock) {
		t.Errorf("%v", err)
	}
	trouble = errors.New("full")
	if err := o.Unblock(t.Context(), who, "r", "k"); !errors.Is(err, ErrUnwritten) {
		t.Errorf("%v", err)
	}
	if len(written) != 3 || written[0].What != "block" || written[0].Who != who || written[0].Error != "" || written[0].Until.IsZero() ||
		written[1].Error == "" || written[2].Error != "" || written[2].At.IsZero() || written[2].Key != "k" {
		t.Errorf("%+v", written)
	}
	listed(t, c, 0)
}

// A status can say anything of rules, under any revision. Where rules are in the bucket it
// redirects no block, changes nothing that is shown of them, and makes none up that could be
// blocked; a worse set in the bucket changes nothing either.
func TestStatusesDoNotChangeRulesOfTheBucket(t *testing.T) {
	c, _ := newDesk(t)
	var told []storage.Rule
	c.o.SetRules = func(list []storage.Rule) { told = list }
	c.takeRules(natssource.Entry{Revision: 3, Version: 5, Data: []byte(`rules:
  - {name: r, key: [user], limit: 5/s, overrides: [{match: {plan: pro}, limit: 50/s}]}
  - {name: s, key: [user], limit: 10/day, throttle: soft, soft: {exceed: 20%}}
`)})
	c.takeRules(natssource.Entry{Revision: 4, Version: 6, Data: []byte("rules: [{limit: -1}]")})
	var got []string
	for _, r := range told {
		got = append(got, fmt.Sprintf("%s %d/%v@%d", r.Name, r.Limit, r.Shape.Length, r.Revision))
	}
	if want := "[r 5/1s@5 r/plan=pro 50/1s@5 s 12/24h0m0s@5]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, want %s", got, want)
	}
	hostile := checkerSays("hostile", 1, 0)
	for name, of := range map[string]string{"r": "s", "r/plan=pro": "s", "made up": "r"} {
		hostile.Set = append(hostile.Set, status.Rule{
			Name: name, Of: of, WindowMS: 3_600_000, Buckets: 1, Algorithm: "fixed_window", Limit: 1, Revision: 1 << 62,
		})
	}
	for i := range mostLooked {
		made := hostile.Set[0]
		made.Name = fmt.Sprint("!", i)
		hostile.Set = append(hostile.Set, made)
	}
	c.picture.checker(hostile)
	if found, err := c.Look(t.Context(), "", "k"); err != nil || found[0].Rule.Name != "r" {
		t.Errorf("of all rules there is %+v, %v", found, err)
	}
	for _, rule := range []string{"r", "r/plan=pro"} {
		b, err := c.blockFor(t.Context(), Who{}, &order{Rule: rule, key: "k", Seconds: 60})
		if must(t, err); b.(BlockView).Rule != "r" {
			t.Errorf("a block of %s is of %s", rule, b.(BlockView).Rule)
		}
		found, err := c.Look(t.Context(), rule, "k")
		if must(t, err); found[0].Rule.WindowMS != 1000 || found[0].Rule.Revision != 5 {
			t.Errorf("looked up by %+v", found[0].Rule)
		}
	}
	if _, err := c.blockFor(t.Context(), Who{}, &order{Rule: "made up", key: "k", Seconds: 60}); !errors.Is(err, ErrRule) {
		t.Errorf("a rule that is not in the bucket: %v", err)
	}
	_, err := c.unblockFor(t.Context(), Who{}, &order{Rule: "r/plan=pro", key: "k"})
	must(t, err)
	listed(t, c, 0)
}
