package rank

import (
	"fmt"
	"strings"
	"testing"

	"railbed/transports"
)

// A share refuses what would be taken for another's.
func TestShareLimits(t *testing.T) {
	if _, err := newShares(nil, maxShares+1, nil); err == nil {
		t.Error("more shares than there are numbers for")
	}
	s, err := newShares(nil, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		imm uint32
		id  uint64
	}{{1 << numberBits, 0}, {0, 1 << (idBits - 1)}} {
		request := []transports.Request{{Imm: r.imm, ID: r.id}}
		if n, err := s.Of(1).Post(t.Context(), request); err == nil || n != 0 ||
			!strings.Contains(fmt.Sprint(err), "too large for a share") {
			t.Errorf("%+v: %d, %v", r, n, err)
		}
	}
}
