package spec

import "fmt"

// CheckName returns an error that says why a testbed's name is invalid, or nil.
func CheckName(name string) error {
	if !testbedName.MatchString(name) {
		return fmt.Errorf("testbed name %q: want %s", name, testbedNameForm)
	}
	return nil
}
