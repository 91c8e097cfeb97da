package checker

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestOneReceiptAtTwoDaemons: a receipt that is settled at two checkers, for different costs,
// counts for one of them, whichever comes first. They know it by the fleet's key, also when that
// changes; a checker without it does not.
func TestOneReceiptAtTwoDaemons(t *testing.T) {
	bus, store, rules := serverstest.NATS(t), memstore.New(), writeFile(t, daily(15))
	startWorker(t, bus.URL(), aggregate.Options{Store: store})
	key, file := strings.Repeat("k", events.MinReceiptKey), filepath.Join(t.TempDir(), "receipt-keys")
	tlsfilestest.Write(t, file, []byte(key))
	first := startChecker(t, "--rules", rules, "--nats", bus.URL(), "--receipt-key-file", file)
	second := startChecker(t, "--rules", rules, "--nats", bus.URL(), "--receipt-key-file", file)
	stranger := startChecker(t, "--rules", rules, "--nats", bus.URL())
	receipt := asks(t, first, `{"rule":"per-user","key":"kristie","cost":5,"settle":true}`, 200).Receipt
	tlsfilestest.Write(t, file, []byte("another "+key+"\n"+key+"\n"))
	second.AwaitMetric(`offpath_files_loads_total{files="receipt-keys",outcome="loaded"}`, "2")
	body := fmt.Sprintf(`{"receipt":%q,"cost":0}`, receipt)
	status, answer := daemontest.Do(t, "POST", strings.Replace(apiOf(stranger), api.Path, api.SettlePath, 1), body)
	if status != 400 || !strings.Contains(answer, "another key") {
		t.Errorf("a checker with another key: %d %s", status, answer)
	}
	refuses(t, nil, append([]string{"--rules", "r", "--receipt-key-file", writeFile(t, key[1:])}, anywhere...), 1, "--receipt-key-file", "31 bytes: want 32")
	refuses(t, map[string]string{"OFFPATH_RECEIPT_KEY": "short"}, append([]string{"--rules", "r"}, anywhere...), 1, "OFFPATH_RECEIPT_KEY", "5 bytes")
	refuses(t, map[string]string{"OFFPATH_RECEIPT_KEY": key}, []string{"--rules", "r", "--receipt-key-file", file}, 2, "want one of them")
	for cost, d := range []*daemontest.Daemon{first, second} {
		url := strings.Replace(apiOf(d), api.Path, api.SettlePath, 1)
		status, body := daemontest.Do(t, "POST", url, fmt.Sprintf(`{"receipt":%q,"cost":%d}`, receipt, cost))
		equal(t, body, status, 204)
	}
	for _, d := range []*daemontest.Daemon{first, second} {
		d.AwaitMetric(`offpath_checker_settlements_total{outcome="answered"}`, "1")
	}
	awaitAnswered(first, "per-user", 5)
	ledger, err := store.Ledger(t.Context())
	must(t, err)
	if l := ledger["per-user"]; l.Counted != 5 || l.Refunded != 5 && l.Refunded != 4 || l.Settled != 0 {
		t.Errorf("%+v: want 5 counted, and 5 or 4 of them refunded", l)
	}
}
