package live

import (
	"bytes"
	"strconv"
	"time"
)

// CPUPressure is the file with the time that tasks waited for a CPU: the kernel's pressure stall
// information (Linux 4.20, Documentation/accounting/psi.rst).
const CPUPressure = "/proc/pressure/cpu"

// SomePressure reads the total from a file's line "some avg10=0.00 avg60=0.00 avg300=0.00
// total=12345": the time since boot in which at least one task waited. It allocates nothing.
func SomePressure(text []byte) (total time.Duration, ok bool) {
	const prefix = "some "
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(prefix)) {
			continue
		}
		_, digits, found := bytes.Cut(bytes.TrimSpace(line), []byte("total="))
		us, err := strconv.ParseUint(string(digits), 10, 53)
		return time.Duration(us) * time.Microsecond, found && err == nil
	}
	return 0, false
}
