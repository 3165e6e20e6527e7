package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// frrDaemons are the daemons that package nodes/frr runs.
var frrDaemons = []string{"/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/lib/frr/bfdd"}

// leastFRR is the oldest major version that reads the configuration of nodes/frr.
const leastFRR = 8

// tryFRR looks for FRRouting's daemons and asks one for its version. It also reports users who
// cannot run them: the daemons change their user ID, which a user namespace with a single ID does
// not allow.
func tryFRR() (string, error) {
	for _, daemon := range frrDaemons {
		if _, err := exec.LookPath(daemon); err != nil {
			return "", err
		}
	}
	line, err := tryProgram(frrDaemons[0], "--version")()
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`version ([0-9]+)`).FindStringSubmatch(line)
	if found == nil {
		return "", fmt.Errorf("zebra printed %q, want a version number", line)
	}
	if major, _ := strconv.Atoi(found[1]); major < leastFRR {
		return "", fmt.Errorf("zebra is %q, want version %d or later", line, leastFRR)
	}
	if os.Geteuid() != 0 {
		return "", errors.New("FRR's daemons change their user id, which a user namespace with a single id " +
			"does not allow")
	}
	return line, nil
}
