package spec

import "fmt"

// CheckName says what is wrong with a testbed's name, or nil.
func CheckName(name string) error {
	if !testbedName.MatchString(name) {
		return fmt.Errorf("testbed name %q: want %s", name, testbedNameForm)
	}
	return nil
}
