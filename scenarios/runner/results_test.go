package runner

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func openAndFill(t *testing.T, dir string) *results {
	t.Helper()
	r, err := openResults(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"run.pcapng", "logs/h0/ping.out", "logs/h0/ping.err"} {
		file, err := r.create(path)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	for _, text := range []string{"first", "second"} {
		err := r.replace("report.json", func(w io.Writer) error {
			_, err := io.WriteString(w, text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestResultsReplaceTheirOwnAndNothingElse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := openAndFill(t, dir)
	if text, err := os.ReadFile(filepath.Join(dir, "report.json")); err != nil || string(text) != "second" {
		t.Fatalf("report %q, %v, want the second", text, err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "notes.txt"), "mine")
	mustWrite(t, filepath.Join(dir, "logs/h0/notes.txt"), "mine")
	again, err := openResults(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	for path, want := range map[string]bool{
		"report.json": false, "run.pcapng": false, "logs/h0/ping.out": false,
		"notes.txt": true, "logs/h0/notes.txt": true, markerFile: true,
	} {
		if exists(filepath.Join(dir, path)) != want {
			t.Errorf("%s exists: %v, want %v", path, !want, want)
		}
	}
}

func TestDiscardedFilesLeaveNoDirectories(t *testing.T) {
	dir := t.TempDir()
	r := openAndFill(t, dir)
	defer r.close()
	if err := r.discard("logs/h0/ping.err"); err != nil || !exists(filepath.Join(dir, "logs/h0/ping.out")) {
		t.Errorf("error %v; want the other file kept", err)
	}
	if err := r.discard("logs/h0/ping.out"); err != nil || exists(filepath.Join(dir, "logs")) {
		t.Errorf("error %v; want no empty directory", err)
	}
	file, err := r.create("logs/h0/ping.out")
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
}

func TestResultsRefuseWhatIsNotTheirs(t *testing.T) {
	foreign := t.TempDir()
	mustWrite(t, filepath.Join(foreign, "thesis.tex"), "years of work")
	marked := t.TempDir()
	mustWrite(t, filepath.Join(marked, markerFile), "thesis.tex\nthesis.tex\n")
	mustWrite(t, filepath.Join(marked, "thesis.tex"), "years of work")
	for _, dir := range []string{foreign, marked, filepath.Join(foreign, "thesis.tex")} {
		if _, err := openResults(dir, nil); !errors.Is(err, ErrResults) {
			t.Errorf("open %s: error %v, want ErrResults", dir, err)
		}
	}
	if !exists(filepath.Join(foreign, "thesis.tex")) || !exists(filepath.Join(marked, "thesis.tex")) {
		t.Error("a file of the user's is gone")
	}
}

// A file of the user's that has the name of a result is neither overwritten nor
// taken for a result by the next run.
func TestResultsMeetTheUsersFiles(t *testing.T) {
	dir := t.TempDir()
	if err := openAndFill(t, dir).close(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "mine.pcapng"), "mine")
	mustWrite(t, filepath.Join(dir, "junit.xml"), "mine")
	for range 2 {
		r, err := openResults(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.create("mine.pcapng"); err == nil {
			t.Error("the user's mine.pcapng was opened for writing")
		}
		if err := r.replace("junit.xml", func(w io.Writer) error {
			_, err := io.WriteString(w, "ours")
			return err
		}); err == nil {
			t.Error("the user's junit.xml was replaced")
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"mine.pcapng", "junit.xml"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "mine" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
	if exists(filepath.Join(dir, "junit.xml.new")) {
		t.Error("the temporary file is still there")
	}
}

func TestResultsStayInTheirDirectory(t *testing.T) {
	base := t.TempDir()
	victim := filepath.Join(base, "victim")
	mustWrite(t, victim, "keep")
	dir := filepath.Join(base, "out")
	r := openAndFill(t, dir)
	if _, err := r.create("../escaped"); err == nil || exists(filepath.Join(base, "escaped")) {
		t.Errorf("create ../escaped: error %v, want one and no file", err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	// A marker and a symbolic link that point outside change nothing there.
	mustWrite(t, filepath.Join(dir, markerFile), markerLine+"\n../victim\n")
	if _, err := openResults(dir, nil); err == nil {
		t.Error("a marker that points outside was accepted")
	}
	if err := os.Symlink(base, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, markerFile), markerLine+"\nlink/victim\n")
	if _, err := openResults(dir, nil); err == nil {
		t.Error("a marker that leads through a symbolic link was accepted")
	}
	if !exists(victim) {
		t.Error("a file outside the directory is gone")
	}
}

func TestResultsOfTwoRunsAtOnce(t *testing.T) {
	dir := t.TempDir()
	r := openAndFill(t, dir)
	defer r.close()
	if _, err := openResults(dir, nil); !errors.Is(err, ErrResults) {
		t.Errorf("second run: error %v, want ErrResults", err)
	}
	if !exists(filepath.Join(dir, "report.json")) {
		t.Error("the second run removed what the first one wrote")
	}
}

func TestResultsBelongToTheInvokingUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: only root can give files away")
	}
	t.Setenv("SUDO_UID", "1234")
	t.Setenv("SUDO_GID", "2345")
	dir := filepath.Join(t.TempDir(), "out")
	r := openAndFill(t, dir)
	defer r.close()
	for _, path := range []string{".", "report.json", "logs", "logs/h0/ping.err", markerFile} {
		info, err := os.Lstat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if uid, gid := ownerOf(info); uid != 1234 || gid != 2345 {
			t.Errorf("%s belongs to %d:%d, want 1234:2345", path, uid, gid)
		}
	}
}

func ownerOf(info os.FileInfo) (uid, gid int) {
	stat := info.Sys().(*syscall.Stat_t)
	return int(stat.Uid), int(stat.Gid)
}
