package torture

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// writeLogs writes what each part printed, every answer, and when the machine stood still to files in
// a directory: who looks for the cause of a violation needs them. Times are seconds since the start,
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
	rows := [][]string{{"sent", "took", "rule", "user", "checker", "rls", "answered", "allowed", "freshness", "trouble"}}
	for i := range all {
		r := &all[i]
		rows = append(rows, []string{
			secondsText(r.sent.Sub(c.start).Seconds()), secondsText(r.took.Seconds()), r.stream.rule, r.user,
			strconv.Itoa(r.checker), strconv.FormatBool(r.rls), strconv.FormatBool(r.answered),
			strconv.FormatBool(r.allowed), r.freshness, r.trouble,
		})
	}
	if err := writeCSV(filepath.Join(dir, "answers.csv"), rows); err != nil {
		return err
	}
	rows = [][]string{{"from", "for"}}
	c.clock.mu.Lock()
	defer c.clock.mu.Unlock()
	for _, gap := range c.clock.gaps {
		rows = append(rows, []string{
			secondsText(gap.from.Sub(c.start).Seconds()), secondsText(gap.until.Sub(gap.from).Seconds()),
		})
	}
	return writeCSV(filepath.Join(dir, "standstill.csv"), rows)
}

func writeCSV(name string, rows [][]string) error {
	var text bytes.Buffer
	_ = csv.NewWriter(&text).WriteAll(rows) // in memory
	if err := os.WriteFile(name, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	return nil
}

func secondsText(s float64) string { return strconv.FormatFloat(s, 'f', 6, 64) }
