package servers

import (
	"net"
	"testing"
)

func TestFreePortStaysBelowEphemeralPorts(t *testing.T) {
	for range 50 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []int{port, port + busOffset} {
			if p < lowestPort || p >= 32768 {
				t.Errorf("port %d is outside of %d to 32767", p, lowestPort)
			}
			listener, err := net.Listen("tcp", address(p))
			if err != nil {
				t.Errorf("port %d is not free: %v", p, err)
				continue
			}
			listener.Close()
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var log tail
	for range 3 {
		log.Write(make([]byte, tailSize/2+1))
	}
	log.Write([]byte("the end"))
	got := log.String()
	if len(got) != tailSize || got[len(got)-7:] != "the end" {
		t.Errorf("kept %d bytes that end in %q", len(got), got[len(got)-7:])
	}
}
