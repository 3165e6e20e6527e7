package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sumIn is an all-reduce whose attribute pg_name has the given value, in protobuf's text form.
func sumIn(group string) string {
	return `id: 3 type: 7 attr { name: "comm_type" int64_val: 0 } attr { name: "comm_size" int64_val: 4096 }` +
		` attr { name: "pg_name" ` + group + ` }`
}

// chakraFolder has the traces of four ranks, each with one all-reduce, and other files.
func chakraFolder(t *testing.T, group string, others map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range 4 {
		nodes := []string{metadata, sumIn(group)}
		if group != "" && rank > 1 {
			nodes[1] = `id: 3 type: 4 duration_micros: 5`
		}
		write(fmt.Sprintf("j.%d.et", rank), encoded(t, nodes...))
	}
	for name, text := range others {
		write(name, []byte(text))
	}
	return dir
}

// TestChakraGroups: ASTRA-sim's Workload.cc takes no group and group "0" as all ranks, and reads other names
// as whole numbers, so that 1.0 is 1. Ranks 0 and 1 have the collective, so that a group of all four ranks
// waits for the others.
func TestChakraGroups(t *testing.T) {
	const pairs = `{"1": [0, 1], "2.0": [3, 2]}`
	for _, c := range []struct {
		group, file string
		want        string // ranks, or the end of an error
	}{
		{`string_val: "1"`, pairs, "[0 1]"},
		{`string_val: "1.0"`, pairs, "[0 1]"},
		{`string_val: "1"`, `{"1.00": [1, 0]}`, "[1 0]"},
		{`int64_val: 1`, pairs, "[0 1]"},
		{`double_val: 1`, pairs, "[0 1]"},
		{`string_val: "0"`, pairs, "rank 0 at task 0"},
		{`string_val: "0"`, "", "rank 0 at task 0"},
		{`string_val: "0.0"`, "", "rank 0 at task 0"},
		{`int32_val: 0`, "", "rank 0 at task 0"},
		{`string_val: "0"`, `{"0": [0, 1, 2, 3]}`, "rank 0 at task 0"},
		{`string_val: "0"`, `{"0": [0, 1]}`,
			`j.json:1:2: group "0": it has 2 of the 4 ranks, but group 0 is all ranks`},
		{`string_val: "2"`, pairs, `j.0.et: byte 9: node 3 has group "2", which has the ranks [3 2] in DIR/j.json`},
		{`string_val: "3"`, pairs, `j.0.et: byte 9: node 3 has group "3", which DIR/j.json does not have`},
		{`string_val: "3"`, "",
			`j.0.et: byte 9: node 3 has group "3", and there is no file of groups DIR/j.json: `},
		{`string_val: "1"`, `{"1": [0, 4]}`, `j.json:1:2: group "1": it has rank 4, want ranks from 0 to 3`},
		{`string_val: "1"`, `{"1": [0, 0]}`, `j.json:1:2: group "1": it has rank 0, want`},
		{`string_val: "1"`, "{\"1\": [0, 1],\n \"1.0\": [0]}",
			`j.json:2:2: group "1.0": the file has group "1" twice`},
		{`string_val: "1"`, `{"1": []}`, `j.json:1:2: group "1": it has no ranks`},
		{`string_val: "1"`, `[[0, 1]]`, `j.json:1:1: read groups of ranks: array is no list of ranks`},
		{`string_val: "1"`, `null`, `j.json:1:1: read groups of ranks: there is no object: want`},
	} {
		others := map[string]string{}
		if c.file != "" {
			others["j.json"] = c.file
		}
		dir := chakraFolder(t, c.group, others)
		p, err := Read(filepath.Join(dir, "j.0.et"), Options{})
		want := strings.ReplaceAll(c.want, "DIR", dir)
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s, file %s: %v, want %s", c.group, c.file, err, want)
		case err == nil && fmt.Sprint(p.Operations[0].Ranks) != want:
			t.Errorf("%s, file %s: ranks %v, want %s", c.group, c.file, p.Operations[0].Ranks, want)
		}
	}
}

// TestChakraGroupFile: ASTRA-sim's examples keep the groups of several jobs in files of any name.
func TestChakraGroupFile(t *testing.T) {
	dir := chakraFolder(t, `string_val: "1"`, map[string]string{"groups.json": `{"1": [1, 0]}`, "j.json": `{}`})
	first := filepath.Join(dir, "j.0.et")
	p, err := Read(first, Options{Groups: filepath.Join(dir, "groups.json")})
	if err != nil || !slices.Equal(p.Operations[0].Ranks, []int{1, 0}) {
		t.Errorf("%v, want ranks 1 and 0", err)
	}
	if _, err := Read(first, Options{Groups: filepath.Join(dir, "none.json")}); err == nil ||
		!strings.Contains(err.Error(), "none.json") {
		t.Errorf("%v, want an error about none.json", err)
	}
	if _, err := Read(first, Options{Ranks: 5}); err == nil ||
		!strings.Contains(err.Error(), first+" to j.3.et, want one for each of 5 ranks") {
		t.Errorf("%v, want the names of the traces", err)
	}
}

// TestChakraJSONGroups: in JSON, the name of a group is a string or a number.
func TestChakraJSONGroups(t *testing.T) {
	for _, group := range []string{`"pg_name": "1"`, `"pg_name": 1`, `"pg_name": 1.0`,
		`"attr": [{"name": "pg_name", "int64_val": "1"}]`, `"attr": [{"name": "pg_name", "double_val": 1.0}]`,
		`"attr": [{"name": "pg_name", "string_val": "1.0"}]`} {
		node := `{"workload_graph": [{"Id": 5, "NodeType": 7, "comm_type": 0, "comm_size": 100, ` + group + `}]}`
		files := []File{{"f.0.json", []byte(node)}, {"f.1.json", []byte(node)}}
		p, err := readChakra(files, groups{ranks: map[string][]int{"1": {1, 0}}}, Options{})
		if err != nil || !slices.Equal(p.Operations[0].Ranks, []int{1, 0}) {
			t.Errorf("%s: %v, want ranks 1 and 0", group, err)
		}
	}
}
