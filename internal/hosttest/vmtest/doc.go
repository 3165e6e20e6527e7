// Package vmtest is for tests only: it runs a test again in a virtual machine
// that has a kernel with everything, so that what the host's kernel lacks is
// tested all the same.
//
// The machine is QEMU's without KVM, which not every host has and which would
// change what is measured; so a guest's processor is 10 to 20 times slower than
// the host's. It has no network. Its first process is the test binary itself,
// and its root file system lies in its own memory, with what the host's /usr
// and the folder of the test hold, read-only. Of /etc it has the files that
// everybody may read, and nothing else of the host.
package vmtest
