package passes

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Package is a package with tests, examples or fuzz targets.
type Package struct {
	Folder string // below the module's, with slashes
	Tests  []Test
	marks  names
}

// Test is a test, an example or a fuzz target: what go test runs by name.
type Test struct {
	Name string
	uses names // what the test can reach of test support, such as hosttest.Netns
}

// names are names of packages of test support, such as hosttest.Netns.
type names map[string]bool

func (n names) any(of ...string) bool {
	return slices.ContainsFunc(of, func(name string) bool { return n[name] })
}

// Read reads the test files of the module in this directory that are built on this platform.
func Read(module string) ([]Package, error) {
	var packages []Package
	err := filepath.WalkDir(module, func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if base := entry.Name(); dir != module && (base == "testdata" || strings.HasPrefix(base, ".") ||
			strings.HasPrefix(base, "_") || exists(filepath.Join(dir, "go.mod"))) {
			return filepath.SkipDir // as the go command's ./... does
		}
		folder, err := filepath.Rel(module, dir)
		if err != nil {
			return err
		}
		p, err := readPackage(dir, filepath.ToSlash(folder))
		if len(p.Tests) > 0 {
			packages = append(packages, p)
		}
		return err
	})
	return packages, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// testName matches functions that go test runs by name.
var testName = regexp.MustCompile(`^(Test|Example|Fuzz)([^a-z]|$)`)

func readPackage(dir, folder string) (Package, error) {
	p := Package{Folder: folder, marks: names{}}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return p, err
	}
	declared := map[string][]ast.Node{}
	for _, name := range files {
		built, err := build.Default.MatchFile(dir, filepath.Base(name))
		if err != nil {
			return p, err
		}
		if !built {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return p, err
		}
		p.declare(file, declared)
	}
	for i := range p.Tests {
		p.Tests[i].reach(p.Tests[i].Name, declared, map[string]bool{})
	}
	return p, nil
}

// declare adds the functions and variables of a file, and the marks of the package.
func (p *Package) declare(file *ast.File, declared map[string][]ast.Node) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				continue
			}
			name := d.Name.Name
			declared[name] = append(declared[name], d)
			if testName.MatchString(name) && name != "TestMain" {
				p.Tests = append(p.Tests, Test{name, names{}})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, isVar := s.(*ast.ValueSpec); isVar {
					p.declareVar(s, declared)
				}
			}
		}
	}
}

func (p *Package) declareVar(s *ast.ValueSpec, declared map[string][]ast.Node) {
	for _, name := range s.Names {
		declared[name.Name] = append(declared[name.Name], s)
	}
	used := names{}
	if inspect(s, used); used["hosttest.MarkPackage"] {
		maps.Copy(p.marks, used)
	}
}

// reach adds the names that a declaration of the package uses, and those of the functions and variables of
// the package that it refers to. Names that a local variable hides count, too.
func (t Test) reach(name string, declared map[string][]ast.Node, seen map[string]bool) {
	if seen[name] {
		return
	}
	seen[name] = true
	for _, node := range declared[name] {
		for _, other := range inspect(node, t.uses) {
			t.reach(other, declared, seen)
		}
	}
}

// inspect adds the names of packages of test support that the node uses: these packages have names that end
// in test. It returns the names without a package.
func inspect(node ast.Node, used names) (own []string) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			own = append(own, n.Name)
		case *ast.SelectorExpr:
			if from, isIdent := n.X.(*ast.Ident); isIdent && strings.HasSuffix(from.Name, "test") {
				used[from.Name+"."+n.Sel.Name] = true
			}
			own = append(own, inspect(n.X, used)...)
			return false
		}
		return true
	})
	return own
}
