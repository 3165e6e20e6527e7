package docker

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// buildContext is a folder as the engine gets it: without what its .dockerignore names.
type buildContext struct {
	fs.FS
	ignored *patternmatcher.PatternMatcher
}

const ignoreName = ".dockerignore"

func contextOf(folder string) (*buildContext, error) {
	c := &buildContext{FS: os.DirFS(folder)}
	file, err := c.Open(ignoreName)
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
		// The engine needs both, whatever is said of all files.
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

// holds reports whether an ignored folder may hold what an exception takes back.
func (c *buildContext) holds(folder string) bool {
	return slices.ContainsFunc(c.ignored.Patterns(), func(p *patternmatcher.Pattern) bool {
		return p.Exclusion() && (strings.HasPrefix(p.String(), folder+"/") || strings.ContainsAny(p.String(), `*?[`))
	})
}

// ReadLink and Lstat implement fs.ReadLinkFS: links are sent as links.
func (c *buildContext) ReadLink(name string) (string, error) { return fs.ReadLink(c.FS, name) }

// Lstat implements fs.ReadLinkFS.
func (c *buildContext) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(c.FS, name) }

// archive writes files as a tar archive.
func archive(to io.Writer, files fs.FS) error {
	out := tar.NewWriter(to)
	if err := out.AddFS(files); err != nil {
		return err
	}
	return out.Close()
}
