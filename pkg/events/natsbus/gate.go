package natsbus

import "sync"

// gate lets calls through, any number at a time, until it is shut. An unsubscribed subscription may
// still be handing over a message; the gate is what waits for it.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

func (g *gate) pass(call func()) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.closed {
		call()
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}
