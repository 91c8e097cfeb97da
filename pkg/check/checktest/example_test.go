package checktest_test

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/check/checktest"
	"github.com/offpath-io/offpath/pkg/identity"
)

// mailer is a service that asks before it sends. What it needs of a checker is its own interface.
type mailer struct {
	limits interface {
		Check(identity.Attributes, int64) check.Decision
	}
}

func (m mailer) send(to string) string {
	d := m.limits.Check(identity.Attributes{{Name: "to", Value: to}}, 1)
	if !d.Allowed {
		return "later, in " + d.RetryAfter.String()
	}
	return "sent"
}

// How does a service take a denial?
func ExampleDeny() {
	fmt.Println(mailer{checktest.Deny(3 * time.Second)}.send("kristie"))
	// Output:
	// later, in 3s
}

// And what comes after one?
func ExampleScript() {
	checker := checktest.Script(checktest.Allowed(0), checktest.Denied(time.Minute), checktest.Allowed(9))
	m := mailer{checker}
	for range 4 {
		fmt.Println(m.send("kristie"))
	}
	fmt.Println(len(checker.Asked()), "questions, the first about", checker.Asked()[0].Attributes)
	// Output:
	// sent
	// later, in 1m0s
	// sent
	// sent
	// 4 questions, the first about [{to kristie}]
}

// One caller is over the limit, the others are not.
func ExampleByAttribute() {
	m := mailer{checktest.ByAttribute("to", map[string]check.Decision{"bob": checktest.Denied(time.Hour)})}
	fmt.Println(m.send("kristie"))
	fmt.Println(m.send("bob"))
	// Output:
	// sent
	// later, in 1h0m0s
}

// Whatever else a test needs.
func ExampleBy() {
	m := mailer{checktest.By(func(a checktest.Asked) check.Decision {
		if to, _ := a.Attributes.Get("to"); len(to) > 10 {
			return checktest.Denied(check.Never)
		}
		return checktest.Allowed(1)
	})}
	fmt.Println(m.send("kristie"))
	// Output:
	// sent
}
