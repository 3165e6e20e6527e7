package input

import (
	"io/fs"
	"os"
	"path"
	"syscall"
)

// Folder is a directory that a user names, whose files may be somebody else's. It opens its files as Open
// does. No name leads out of it. Folder implements fs.ReadDirFS and fs.StatFS.
type Folder struct{ root *os.Root }

// OpenFolder opens a directory. Close it after use.
func OpenFolder(name string) (*Folder, error) {
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Folder{root}, nil
}

// FolderOf returns the directory of a root, which the caller closes.
func FolderOf(root *os.Root) *Folder { return &Folder{root} }

// Open implements fs.FS. It refuses all files except regular ones.
func (f *Folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &KindError{Path: path.Join(f.root.Name(), name), Kind: kindOf(info.Mode())}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// ReadDir implements fs.ReadDirFS.
func (f *Folder) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.root.FS(), name) }

// Stat implements fs.StatFS.
func (f *Folder) Stat(name string) (fs.FileInfo, error) { return f.root.Stat(name) }

// Close closes the directory.
func (f *Folder) Close() error { return f.root.Close() }
