package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"railbed/internal/input"
)

// buildContext is a folder as it is sent to the engine: without the files that its .dockerignore
// names.
type buildContext struct {
	fs.FS
	ignored *patternmatcher.PatternMatcher
}

const ignoreName = ".dockerignore"

func contextOf(folder string) (*buildContext, error) {
	c := &buildContext{FS: os.DirFS(folder)}
	file, err := input.Open(filepath.Join(folder, ignoreName))
	if errors.Is(err, fs.ErrNotExist) {
		c.ignored, err = patternmatcher.New(nil)
		return c, err
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	patterns, err := ignorefile.ReadAll(file)
	if err == nil {
		// The engine needs both, even if a pattern ignores all files.
		c.ignored, err = patternmatcher.New(append(patterns, "!Dockerfile", "!"+ignoreName))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ignoreName, err)
	}
	return c, nil
}

// ReadDir implements fs.ReadDirFS.
func (c *buildContext) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, name)
	var failed error
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool {
		if entry.Type() == fs.ModeSocket {
			return true // archives have none, and docker build leaves them out
		}
		inner := path.Join(name, entry.Name())
		ignored, err := c.ignored.MatchesOrParentMatches(inner)
		failed = errors.Join(failed, err)
		return ignored && !(entry.IsDir() && c.holds(inner))
	})
	return entries, errors.Join(err, failed)
}

// holds reports whether an ignored folder may hold files that an exception includes again.
func (c *buildContext) holds(folder string) bool {
	return slices.ContainsFunc(c.ignored.Patterns(), func(p *patternmatcher.Pattern) bool {
		return p.Exclusion() &&
			(strings.HasPrefix(p.String(), folder+"/") || strings.ContainsAny(p.String(), `*?[`))
	})
}

// archive writes files as a tar archive. It includes FIFOs and devices, which engines make anew and
// tar.Writer.AddFS refuses.
func archive(to io.Writer, files *buildContext) error {
	out := tar.NewWriter(to)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := ""
		if entry.Type() == fs.ModeSymlink { // links are sent as links
			if target, err = fs.ReadLink(files.FS, name); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		header.Name = name
		if entry.IsDir() {
			header.Name += "/"
		}
		if err := out.WriteHeader(header); err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := files.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(out, file)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}
