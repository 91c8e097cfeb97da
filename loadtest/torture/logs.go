package torture

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// writeLogs writes what each part printed, every answer, and where hits were to files in a
// directory: who looks for the cause of a violation needs them. Times are seconds since the start,
// as in the result.
func (c *campaign) writeLogs(dir string, all []request) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	for _, p := range c.fleet.parts() {
		var text []byte
		for _, line := range p.log.all() {
			text = fmt.Appendf(text, "%9.3f %s\n", line.at.Sub(c.start).Seconds(), line.text)
		}
		if err := os.WriteFile(filepath.Join(dir, p.name+".log"), text, 0o600); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	for name, rows := range map[string][][]string{
		"answers": c.answerRows(all), "hits": c.hitRows(), "lives": c.lifeRows(),
		"ledgers": c.ledgerRows(), "standstill": c.standstillRows(),
	} {
		var text bytes.Buffer
		_ = csv.NewWriter(&text).WriteAll(rows) // in memory
		if err := os.WriteFile(filepath.Join(dir, name+".csv"), text.Bytes(), 0o600); err != nil {
			return fmt.Errorf("torture: %w", err)
		}
	}
	return nil
}

func (c *campaign) answerRows(all []request) [][]string {
	rows := [][]string{{"sent", "took", "rule", "user", "checker", "rls", "answered", "allowed", "freshness", "trouble"}}
	for i := range all {
		r := &all[i]
		rows = append(rows, []string{
			c.secondsAt(r.sent), secondsText(r.took), r.stream.rule, r.user, strconv.Itoa(r.checker),
			strconv.FormatBool(r.rls), strconv.FormatBool(r.answered), strconv.FormatBool(r.allowed),
			r.freshness, r.trouble,
		})
	}
	return rows
}

// hitRows are where the hits of each checker were, by its own account, and how far it had the
// fleet's time ahead of the machine's.
func (c *campaign) hitRows() [][]string {
	rows := [][]string{{"asked", "took", "checker", "charged", "answered", "overflow", "lost", "cancelled", "in_flight", "pending", "ahead_ms"}}
	c.samples.mu.Lock()
	defer c.samples.mu.Unlock()
	for _, p := range c.fleet.checkers {
		for _, one := range c.samples.list[p] {
			if one.hits == nil { // it did not answer
				continue
			}
			row := []string{c.secondsAt(one.at), secondsText(one.until.Sub(one.at)), p.name}
			for _, n := range one.hits {
				row = append(row, strconv.FormatFloat(n, 'f', 0, 64))
			}
			rows = append(rows, append(row, strconv.FormatInt(one.ahead.Milliseconds(), 10)))
		}
	}
	return rows
}

// lifeRows are the lives of checkers, and how many hits each has taken with it, at most.
func (c *campaign) lifeRows() [][]string {
	rows := [][]string{{"checker", "from", "until", "held"}}
	for _, p := range c.fleet.checkers {
		for _, l := range p.lives {
			rows = append(rows, []string{
				p.name, c.secondsAt(l.from), c.secondsAt(l.until), strconv.FormatInt(l.held, 10),
			})
		}
	}
	return rows
}

// ledgerRows are the changes of each node's role and ledger.
func (c *campaign) ledgerRows() [][]string {
	rows := [][]string{{"at", "node", "master", "synced", "ledger"}}
	books := c.fleet.store.readings()
	books.mu.Lock()
	defer books.mu.Unlock()
	for _, n := range c.fleet.store.nodes() {
		for _, r := range books.changes[n] {
			rows = append(rows, []string{
				c.secondsAt(r.at), n.name, strconv.FormatBool(r.master), strconv.FormatBool(r.synced),
				strconv.FormatInt(r.sum, 10),
			})
		}
	}
	return rows
}

func (c *campaign) standstillRows() [][]string {
	rows := [][]string{{"from", "for"}}
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	for _, gap := range c.clock.gaps {
		rows = append(rows, []string{c.secondsAt(gap.from), secondsText(gap.until.Sub(gap.from))})
	}
	return rows
}

func (c *campaign) secondsAt(t time.Time) string { return secondsText(t.Sub(c.start)) }

func secondsText(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }
