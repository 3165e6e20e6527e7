package worker

import (
	"fmt"
	"net"
	"testing"
	"time"
)

// TestPortsOfWorkersThatEnd: a port that is about to be free is waited for.
func TestPortsOfWorkersThatEnd(t *testing.T) {
	j := job(3, 4096)
	taken, err := net.Listen("tcp", fmt.Sprintf("%v:%d", loopback, j.BasePort+1))
	if err != nil {
		t.Fatal(err)
	}
	free := time.AfterFunc(100*time.Millisecond, func() { taken.Close() })
	result, err := Run(t.Context(), j, goroutines{}, nil)
	if free.Stop() {
		t.Error("all was over before the port was free")
	}
	if err != nil {
		t.Fatal(err)
	}
	checkResult(t, j, result)
}
