//! Processes that end with the test process, however it ends.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{OnceLock, mpsc},
};

/// What a caller asks the starting thread for: a command, and where the result goes.
type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// A command that runs `binary` and is killed by the kernel when this process is gone.
pub(crate) fn command(binary: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    command
}

/// Starts it. The kernel ties a child to the *thread* that started it, and a test's thread ends with its test: so one thread, which lives
/// as long as the process, starts them all.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                let _nobody_waits = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, result) = mpsc::channel();
    starter
        .send((command, reply))
        .map_err(|_gone| io::Error::other("the starting thread is gone"))?;
    result
        .recv()
        .map_err(|_gone| io::Error::other("the starting thread is gone"))?
}

/// The file that a name stands for on PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}
