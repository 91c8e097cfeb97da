package checker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/pkg/events"
)

// receiptKeys returns a function that returns the fleet's keys for receipts, from the newest good
// file; nil if there are none, and the checker draws a key of its own.
func (c config) receiptKeys(files *tlsfiles.Files) (current func() events.ReceiptKeys, err error) {
	switch {
	case c.receiptKey != "":
		keys, err := events.ParseReceiptKeys([]byte(c.receiptKey))
		if err != nil {
			return nil, fmt.Errorf("OFFPATH_RECEIPT_KEY: %w", err)
		}
		return func() events.ReceiptKeys { return keys }, nil
	case c.receiptKeyFile == "":
		return nil, nil
	}
	var keys atomic.Pointer[events.ReceiptKeys]
	_, err = files.Text("receipt-keys", c.receiptKeyFile, func(content []byte) (time.Time, error) {
		read, err := events.ParseReceiptKeys(content)
		if err == nil {
			keys.Store(&read)
		}
		return time.Time{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("--receipt-key-file: %w", err)
	}
	return func() events.ReceiptKeys { return *keys.Load() }, nil
}
