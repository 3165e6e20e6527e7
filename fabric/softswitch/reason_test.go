package softswitch

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"railbed/plan/spec"
)

// A check of drops takes the reasons that captures can have, and no others.
func TestFilesHaveTheReasonsOfDrops(t *testing.T) {
	field, _ := reflect.TypeFor[spec.DropsCheck]().FieldByName("Reason")
	var words []string
	for _, part := range strings.Split(field.Tag.Get("jsonschema"), ",") {
		words = append(words, strings.TrimPrefix(part, "enum="))
	}
	if want := Recorded(); !slices.Equal(words, want) {
		t.Errorf("files have the reasons\n%q, captures\n%q", words, want)
	}
}
