package wireshark

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner reports a directory of another user.
func checkOwner(home string) error {
	info, err := os.Stat(home)
	if err != nil {
		return fmt.Errorf("find the folders of Wireshark: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d; run railbed wireshark as this user, without sudo", home,
			stat.Uid)
	}
	return nil
}
