package spec

import (
	"errors"
	"fmt"
	"strings"
)

// lossy is a file whose links have a loss that is a variable, and lossyMatrix has a matrix of it.
const (
	lossy = "name: a\nfabric: {topology: single-switch, params: {hosts: 4}, " +
		"links: {default: {loss: \"${loss}\"}}}\n"
	lossyMatrix = lossy + "matrix: {loss: [0, 1%]}\n"
)

// twoAxes returns a file with the axes loss and rate, and more keys of matrix and of the file.
func twoAxes(inMatrix, more string) string {
	return "name: a\nfabric: {topology: single-switch, params: {hosts: 4}, " +
		"links: {default: {loss: \"${loss}\", rate: \"${rate}\"}}}\n" +
		"matrix:\n  loss: [0, 1%]\n  rate: [1gbit, 2gbit]\n" + inMatrix + more
}

// compared returns a file with a comparison.
func compared(keys string) string { return lossyMatrix + "compare:\n  - {" + keys + "}\n" }

// claimed is a comparison of a claim's cells, and claim the claim.
const claimed = "compare: [{metric: busbw, ratio: '>= 90%'}]\n"

func claim(baseline, treatment string) string {
	return "claim: {system: a, source: b, published: c, holds: d, baseline: " + baseline + ", treatment: " +
		treatment + "}\n"
}

// decodeAll decodes all cells of a file.
func decodeAll(text string) error {
	f, err := Parse("f.yaml", []byte(text))
	if err != nil {
		return err
	}
	var all []Problems
	for i := range f.Cells {
		_, err := f.Decode(&f.Cells[i])
		var problems Problems
		if err != nil && !errors.As(err, &problems) {
			return err
		}
		all = append(all, problems)
	}
	return MergeProblems(len(f.Cells), all).Err()
}

// wrongMatrixFiles are as wrongFiles.
var wrongMatrixFiles = []struct {
	name, text string
	what, want string
}{
	// Variables.
	{"variables as a list", lossy + "variables: " + here + "[loss]\n", "variables is a list",
		"write a mapping of names to values"},
	{"variable with a wrong name", lossy + "variables: {loss: 0, " + here + "a.b: 1}\n",
		`invalid name "a.b" of a variable`, "want 1 to 32 characters"},
	{"variable twice", lossy + "variables: {loss: 0, " + here + "loss: 1%}\n", `key "loss" appears twice`,
		"remove one"},
	{"variable without a value", lossy + "variables: {loss: " + here + "~}\n", `variables["loss"] is empty`,
		"write a value"},
	{"variable of a variable", lossy + "variables: {a: 1%, loss: " + here + "\"${a}\"}\n",
		"refers to a variable", "variables cannot refer to variables"},
	{"variable with a tag", lossy + "variables: {loss: " + here + "!!str 1%}\n", `tag "!!str"`, "remove it"},
	{"unused variable", lossy + "variables: {loss: 0, " + here + "size: 1MiB}\n",
		`variable "size" is not used`, `write "${size}" as a value, or remove`},
	{"unknown variable", lossy[:len(lossy)-len("${loss}\"}}}\n")] + here +
		"${los}\"}}}\nvariables: {loss: 0}\n" +
		"description: ${loss}\n", `variable "los" does not exist`,
		`did you mean "loss"?; the text ${los} is written as $${los}`},
	{"unknown variable in a text", lossy + "variables: {loss: 0}\nsteps:\n" +
		"  - exec: {nodes: [h0], command: [sh, -c, 'echo $${A} " + here + "${HOME}']}\n",
		`variable "HOME" does not exist`, "want loss; the text ${HOME} is written as $${HOME}"},
	{"reference without an end", lossy + "variables: {loss: 0}\ndescription: a " + here + "${loss\n",
		"${ without }", "want write $${ for the text ${"},
	{"reference to no name", lossy + "variables: {loss: 0}\ndescription: a " + here + "${loss:-1}\n",
		`"loss:-1" is no name of a variable`, "write $${ for the text ${"},
	{"reference in a key", lossy + "variables: {loss: 0}\nnodes: {" + here + "\"${loss}\": {cpu: 1}}\n",
		`${ in the key "${loss}"`, "variables stand for values only"},
	{"reference without quotes", "name: a\nvariables: {loss: 0}\nfabric: {topology: single-switch, " +
		"links: {default: {loss: " + here + "${loss}}}}\n", "${ without quotes inside { } or [ ]",
		`write "${name}" in quotes`},
	{"value of another type", lossy[:len(lossy)-len("\"${loss}\"}}}\n")] + here +
		"\"${loss}\"}}}\nvariables: {loss: much}\n", `ratio "much" cannot be read`, "0.1%"},
	{"mapping in a text", lossy + "variables: {loss: 0, a: " + here + "[b]}\ndescription: ${a}\n",
		"description is a list", "write text"},
	{"seed of text", lossy + "variables: {loss: 0, seed: \"7\"}\nseed: " + here + "${seed}\n",
		`seed is the text "7"`, "without quotes"},

	// Axes.
	{"matrix as a list", lossy + "matrix: " + here + "[loss]\n", "matrix is a list",
		"axes to lists of values"},
	{"matrix without an axis", lossy + here + "matrix: {}\n", "matrix without an axis",
		"add an axis"},
	{"axis with a wrong name", lossy + "matrix: {" + here + "lo ss: [1]}\n", `invalid name "lo ss"`,
		"want 1 to 32 characters"},
	{"axis of one value", lossy + "matrix: {loss: " + here + "1%}\n", `matrix.loss is the text "1%"`,
		"write a list of values"},
	{"empty axis", lossy + "matrix: {" + here + "loss: []}\n", `axis "loss" has no values`,
		"write at least one value"},
	{"axis twice", lossy + "matrix: {loss: [0], " + here + "loss: [1%]}\n", `key "loss" appears twice`,
		"remove one"},
	{"value twice", lossy + "matrix: {loss: [0, 1%, " + here + "0]}\n",
		`value 0 appears twice in axis "loss"`,
		"remove one; the first is at line 3, column 17"},
	{"empty value", lossy + "matrix: {loss: [0, " + here + "~]}\n", "matrix.loss[1] is empty",
		"write a value"},
	{"mapping as a value", lossy + "matrix: {loss: [0, " + here + "{a: 1}]}\n", "matrix.loss[1] is a mapping",
		"give its cells the mapping or list under include"},
	{"long value", lossy + "matrix: {loss: [" + here + strings.Repeat("0", 41) + "]}\n", "cannot name a cell",
		"1 to 40 characters"},
	{"axis that is a variable", lossy + "variables: {loss: 0}\nmatrix: {" + here + "loss: [0, 1%]}\n",
		`"loss" is an axis and a variable`, "rename one; the variable is at line 3, column 13"},
	{"unused axis", lossy + "matrix: {loss: [0], " + here + "size: [1, 2]}\n", `axis "size" changes nothing`,
		`write "${size}" as a value, or remove`},
	{"too many cells", twoAxes("", here+"")[:strings.Index(twoAxes("", ""), "matrix:")] + here +
		"matrix: {loss: [" + numbers(17) + "], rate: [" + numbers(17) + "]}\n", "matrix of 289 cells",
		"want at most 256"},
	{"far too many cells", "name: a\nfabric: {topology: single-switch}\ndescription: ${a}${b}${c}\n" + here +
		"matrix: {a: [" + numbers(300) + "], b: [" + numbers(300) + "], c: [" + numbers(300) + "]}\n",
		"matrix of 90000 cells", "want at most 256"},
	{"too many axes", lossy + here + "matrix: {loss: [0], a: [1], b: [1], c: [1], d: [1], e: [1], f: [1], " +
		"g: [1], h: [1]}\n", "matrix with 9 axes", "want at most 8"},
	{"no repetition", lossy + "matrix: {loss: [0], repeat: " + here + "0}\n", "repeat is 0", "want 1 to 100"},
	{"many repetitions", lossy + "matrix: {loss: [0], repeat: " + here + "101}\n", "repeat is 101",
		"want 1 to 100"},
	{"repetitions in words", lossy + "matrix: {loss: [0], repeat: " + here + "twice}\n",
		`matrix.repeat is the text "twice"`, "a whole number"},
	{"problem of a cell", "name: a\nfabric: {topology: single-switch, params: {hosts: 4}, links: {default: " +
		"{loss: " + here + "\"${loss}\"}}}\nmatrix: {loss: [0, 1%, much]}\n", `ratio "much" cannot be read`,
		"0.1%"},
	{"problem of all cells", lossyMatrix + "seed: " + here + "0\n", "seed is 0", "want at least 1"},

	// Include and exclude.
	{"include as a mapping", lossy + "matrix: {loss: [0], include: " + here + "{loss: 1%}}\n",
		"matrix.include is a mapping", "write a list of mappings"},
	{"entry as text", lossy + "matrix: {loss: [0], include: [" + here + "loss]}\n",
		`matrix.include[0] is the text "loss"`, "write a mapping of axes to values"},
	{"excluded axis is none", twoAxes("  exclude: [{loss: 0, "+here+"rat: 1gbit}]\n", ""), `"rat" is no axis`,
		`did you mean "rate"?`},
	{"nothing to exclude", twoAxes("  exclude: ["+here+"{loss: 2%}]\n", ""),
		"no cell to exclude has these values", "write values of the axes"},
	{"everything excluded", lossy + here + "matrix: {loss: [0], exclude: [{loss: 0}]}\n",
		"matrix without a cell", "exclude fewer cells"},
	{"included cell lacks an axis", twoAxes("  include: ["+here+"{loss: 2%}]\n", ""),
		"a new cell lacks axis rate", "add rate: VALUE"},
	{"included cell is there", twoAxes("  include: ["+here+"{loss: 0, rate: 1gbit}]\n", ""),
		"the matrix has these cells already", "add the value of a variable"},
	{"included twice", twoAxes("  include: [{loss: 2%, rate: 1gbit}, "+here+"{loss: 2%, rate: 1gbit}]\n", ""),
		"another entry adds this cell", "write one entry"},
	{"variable of some cells", "name: a\nseed: " + here + "${seed}\n" +
		"fabric: {topology: single-switch, params: {hosts: 4}, links: {default: {loss: \"${loss}\"}}}\n" +
		"matrix: {loss: [0, 1%], include: [{loss: 0, seed: 3}]}\n",
		`variable "seed" has no value in this cell`,
		"add seed: VALUE to variables"},

	// Comparisons.
	{"compare without a matrix", lossy + "variables: {loss: 0}\n" + here + "compare: []\n",
		"compare without a matrix", "add a matrix"},
	{"compare as text", lossyMatrix + "compare: " + here + "busbw\n", `compare is the text "busbw"`,
		"write a list"},
	{"many comparisons", lossyMatrix + "compare: " + here + "[" + numbers(101) + "]\n",
		"compare has 101 entries", "want at most 100"},
	{"unknown key of compare", compared("metric: busbw, beside: {loss: 0}, ratio: \">= 90%\", " + here +
		"cell: {loss: 1%}"), `unknown key "cell" in compare[0]`, `did you mean "cells"?`},
	{"compare without a metric", lossyMatrix + "compare:\n  - " + here +
		"{beside: {loss: 0}, ratio: '>= 90%'}\n",
		`compare[0] lacks the key "metric"`, "add metric: text"},
	{"compare without a ratio", lossyMatrix + "compare:\n  - " + here +
		"{metric: busbw, beside: {loss: 0}}\n",
		`compare[0] lacks the key "ratio"`, "add ratio"},
	{"ratio without a percentage", compared("metric: busbw, beside: {loss: 0}, ratio: " + here + "\">= 2\""),
		`compare[0].ratio ">= 2" is no comparison`, `as in ">= 110%, <= 400%"`},
	{"three bounds", compared("metric: busbw, beside: {loss: 0}, ratio: " + here + "'>= 2%, <= 3%, <= 4%'"),
		`compare[0].ratio ">= 2%, <= 3%, <= 4%" is no comparison`, "want one or two"},
	{"baseline without a bound", compared("metric: busbw, beside: {loss: 0}, ratio: '>= 2%', baseline: " +
		here +
		"10mbit"), `compare[0].baseline "10mbit" is no comparison`, "in the unit of the number"},
	{"nothing beside", lossyMatrix + "compare:\n  - " + here + "{metric: busbw, ratio: '>= 90%'}\n",
		"compare[0] compares with nothing", "add beside"},
	{"a part beside itself", compared("metric: busbw, of: a, beside-of: " + here + "a, ratio: '>= 90%'"),
		"a number beside itself", "name another part"},
	{"beside nothing", compared("metric: busbw, " + here + "beside: {}, ratio: \">= 90%\""),
		"beside names no axis", "write the values of another cell"},
	{"beside no axis", compared("metric: busbw, beside: {" + here + "los: 0}, ratio: \">= 90%\""),
		`"los" is no axis`, `did you mean "loss"?`},
	{"beside no value", compared("metric: busbw, beside: {loss: " + here + "2%}, ratio: \">= 90%\""),
		"no cell has loss=2%", "write a value of the axis"},
	{"cells of no value", compared("metric: busbw, cells: {loss: " + here + "2%}, beside: {loss: 0}, " +
		"ratio: \">= 90%\""), "no cell has loss=2%", "write a value of the axis"},
	{"beside itself", lossyMatrix + "compare:\n  - " + here +
		"{metric: busbw, cells: {loss: 0}, beside: {loss: 0}, ratio: '>= 90%'}\n",
		"no two cells to compare", "beside with the value of an axis"},
	{"axis in compare", compared("metric: busbw, beside: {loss: \"" + here + "${loss}\"}, ratio: \">= 90%\""),
		`"loss" differs between cells`, "write a value"},

	// Claims and controls.
	{"claim without a matrix", lossy + "variables: {loss: 0}\n" + here + "claim: {}\n",
		"claim without a matrix",
		"with repetitions"},
	{"claim without a comparison", lossyMatrix + here + claim("{loss: 0}", "{loss: 1%}"),
		"claim without a comparison", "add compare"},
	{"claim without a source", lossyMatrix + claimed + here + "claim: " +
		"{system: a, published: b, holds: c, baseline: {loss: 0}, treatment: {loss: 1%}}\n",
		`claim lacks the key "source"`, "add source"},
	{"baseline of no axis", lossyMatrix + claimed + claim("{"+here+"los: 0}", "{loss: 1%}"),
		`"los" is no axis`, `did you mean "loss"?`},
	{"treatment of no cell", lossyMatrix + claimed + claim("{loss: 0}", "{loss: "+here+"2%}"),
		"no cell has loss=2%", "write a value of the axis"},
	{"empty treatment", lossyMatrix + claimed + strings.Replace(claim("{loss: 0}", "{}"), "treatment",
		here+"treatment", 1), "treatment is empty",
		"write values of axes"},
	{"treatment of other keys", lossyMatrix + claimed + here + claim("{loss: 0}", "{workload: a}"),
		"baseline and treatment have different keys", "give both the same keys"},
	{"treatment as baseline", lossyMatrix + claimed + here + claim("{loss: 0}", "{loss: 0}"),
		"baseline and treatment are the same", "different values"},
	{"control beside a matrix", lossyMatrix + here + "control: [{loss: 0}]\n", "control beside a matrix",
		"remove one"},
	{"empty control", lossy + "variables: {loss: 1%}\n" + here + "control: []\n", "control is empty",
		"write a list"},
	{"control of nothing", lossy + "variables: {loss: 1%}\ncontrol: [" + here + "{}]\n",
		"control[0] changes nothing", "write values of variables"},
	{"control of no variable", lossy + "variables: {loss: 1%}\ncontrol: [{" + here + "los: 0}]\n",
		`"los" is no variable`, `did you mean "loss"?`},
	{"control that changes nothing", lossy + "variables: {loss: 1%}\ncontrol: [{loss: " + here + "1%}]\n",
		"loss is 1% anyway", "takes the treatment away"},
	{"misspelt matrix", head + here + "matrx: {a: [1]}\n", `unknown key "matrx"`, `did you mean "matrix"?`},
}

// numbers returns a list of numbers.
func numbers(n int) string {
	var words []string
	for i := range n {
		words = append(words, fmt.Sprint(i))
	}
	return strings.Join(words, ", ")
}
