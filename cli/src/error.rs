//! The one error type of the program: what a person reads, and the exit code.

use undercroft_policy::SpecError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line asks for what makes no sense.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Trace(#[from] undercroft_recording::Error),
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Simulation(#[from] undercroft_sim::Error),
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Generator(#[from] undercroft_trace::GeneratorError),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
    /// The work failed.
    #[error("{0}")]
    Work(String),
    #[error(transparent)]
    Serve(#[from] undercroft_server::process::ServeError),
    #[cfg(feature = "lab")]
    #[error(transparent)]
    Report(#[from] undercroft_report::Error),
    #[error("results: {0}")]
    Json(#[from] serde_json::Error),
    #[cfg(feature = "lab")]
    #[error("results: {0}")]
    Csv(#[from] csv::Error),
}

impl From<SpecError> for Error {
    fn from(error: SpecError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl Error {
    /// Whether whoever reads our output has closed it: nothing went wrong then.
    pub(crate) fn is_closed_output(&self) -> bool {
        let source = match self {
            Self::Output(source) | Self::Trace(undercroft_recording::Error::Io { source, .. }) => {
                source
            }
            #[cfg(feature = "lab")]
            Self::Csv(error) => match error.kind() {
                csv::ErrorKind::Io(source) => source,
                _ => return false,
            },
            _ => return false,
        };
        source.kind() == std::io::ErrorKind::BrokenPipe
    }

    /// 2 if the command line is wrong, 1 if the work failed.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Serve(undercroft_server::process::ServeError::Plan(_)) => 2,
            #[cfg(feature = "lab")]
            Self::Generator(_) | Self::Simulation(undercroft_sim::Error::Request(_)) => 2,
            _ => 1,
        }
    }
}
