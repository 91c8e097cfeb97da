package console

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	// Unlike encoding/json, it refuses fields that come twice or in another case, and can refuse
	// those that nobody knows.
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/offpath-io/offpath/cmd/internal/reply"
)

const (
	// maxBlock and defaultBlock are how long a block may last, and does if nobody says.
	maxBlock, defaultBlock = 366 * 24 * time.Hour, time.Hour
)

// order is what somebody wants to have changed.
type order struct {
	Rule      string  `json:"rule"`
	Key       string  `json:"key"`
	KeyBase64 string  `json:"key_base64"`
	Seconds   float64 `json:"seconds"` // of a block; 0 is an hour

	key string
}

func (c *Console) blockFor(ctx context.Context, who Who, o *order) (any, error) {
	span := defaultBlock
	if o.Seconds != 0 {
		span = time.Duration(min(o.Seconds, 2*maxBlock.Seconds()) * float64(time.Second))
	}
	known := c.blockable()
	r, ok := known[o.Rule]
	switch {
	case ok && r.of == "" && c.inBucket() == nil && c.picture.mayBeOverrides(o.Rule):
		return nil, errTooSoon
	case ok:
		o.Rule = r.blocked()
	case len(known) > 0:
		return nil, unknown(o.Rule, known)
	}
	return c.operator.Block(ctx, who, o.Rule, o.key, span)
}

func (c *Console) unblockFor(ctx context.Context, who Who, o *order) (any, error) {
	if r, ok := c.blockable()[o.Rule]; ok {
		o.Rule = r.blocked()
	}
	return struct{}{}, c.operator.Unblock(ctx, who, o.Rule, o.key)
}

func (c *Console) resetFor(ctx context.Context, who Who, o *order) (any, error) {
	return c.Reset(ctx, who, o.Rule, o.key)
}

// changeTimeout is how long a change may take.
const changeTimeout = 8 * time.Second

// change lets those with a token have a key's state changed.
func (c *Console) change(do func(context.Context, Who, *order) (any, error)) http.HandlerFunc {
	return changeBy(c, maxBody, func(ctx context.Context, who Who, o *order) (any, error) {
		if err := o.check(); err != nil {
			return nil, err
		}
		return do(ctx, who, o)
	})
}

// changeBy lets those with a token have something changed, by an order of at most so many bytes.
func changeBy[O any](
	c *Console, most int64, do func(context.Context, Who, *O) (any, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, code, err := c.whose(r)
		if err != nil {
			reply.Error(w, code, err.Error())
			return
		}
		o, err := readOrder[O](w, r, most)
		if err != nil {
			reply.Error(w, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
		defer cancel()
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		done, err := do(ctx, Who{Name: name, From: host}, o)
		if err != nil {
			reply.Error(w, statusOf(err), err.Error())
			return
		}
		reply.JSON(w, http.StatusOK, done)
	}
}

var (
	errReadOnly   = errors.New("this console is for looking only: it is without a token")
	errToken      = errors.New("this needs a token, as Authorization: Bearer TOKEN")
	errTooSoon    = errors.New("the checkers have not told yet which rule this is of; ask again in some seconds, or name the rule itself")
	errTwoKeys    = errors.New("want one of key and key_base64")
	errWrongToken = errors.New("nobody has this token (any more)")
)

// whose returns whose token a request has. It has to be in a header of its own, which no other site
// can make a browser send.
func (c *Console) whose(r *http.Request) (name string, code int, err error) {
	tokens := c.o.Tokens()
	if len(tokens) == 0 {
		return "", http.StatusForbidden, errReadOnly
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", http.StatusUnauthorized, errToken
	}
	if name, ok = tokens.of(strings.TrimSpace(token)); !ok {
		return "", http.StatusUnauthorized, errWrongToken
	}
	return name, 0, nil
}

// check reads the order's key.
func (o *order) check() (err error) {
	if o.Key != "" && o.KeyBase64 != "" {
		return errTwoKeys
	}
	o.key, err = keyOf(o.Key, o.KeyBase64)
	return err
}

func readOrder[O any](w http.ResponseWriter, r *http.Request, most int64) (*O, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, errors.New("want a body of application/json")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return nil, err
	}
	o := new(O)
	return o, json.Unmarshal(data, o, json.RejectUnknownMembers(true), json.WithUnmarshalers(noNull))
}

// noNull refuses null, which would stand for what is there if nothing is said.
var noNull = json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ any) error {
	if d.PeekKind() == 'n' {
		return errors.New("null is no value here")
	}
	return errors.ErrUnsupported // as without this
})
