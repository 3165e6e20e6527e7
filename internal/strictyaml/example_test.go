package strictyaml_test

import (
	"fmt"

	"railbed/internal/strictyaml"
)

type menu struct {
	Name   string  `yaml:"name"`
	Size   string  `yaml:"size,omitempty" jsonschema:"enum=small,enum=large"`
	Prices []entry `yaml:"prices,omitempty"`
}

// entry is a price by the name of its dish.
type entry struct {
	Key   string
	Value price
}

type price struct {
	Euros float64 `yaml:"euros" jsonschema:"minimum=1"`
}

// All problems of a text are reported at once: of the keys, of the types, of the tags, and of the caller.
func Example() {
	text := []byte(`name: lunch
siz: small
prices:
  soup: {euros: free}
  tea: {euros: 0}
`)
	format := strictyaml.Format{Noun: "menu", Empty: "write name:", MaxBytes: 1 << 20, Depth: 3}
	root, err := format.Parse("menu.yaml", text)
	if err != nil {
		fmt.Println(err)
		return
	}
	var m menu
	d := format.Decoder(strictyaml.NewSource("menu.yaml", text, ""))
	d.Decode(root, "", &m)
	c := strictyaml.NewChecker(d.Source, d.Wrong)
	c.Tags("", &m)
	if m.Name == "lunch" {
		c.Report("name", "lunch is no name", "name the restaurant")
	}
	fmt.Println(append(d.Problems, c.Problems...).Err())
	// Output:
	// menu.yaml:1:7: lunch is no name; name the restaurant
	// menu.yaml:2:1: unknown key "siz" in the file; did you mean "size"?
	// menu.yaml:4:17: prices["soup"].euros is the text "free"; write a number in decimal digits
	// menu.yaml:5:16: prices["tea"].euros is 0; want at least 1
}
